# ruff: noqa: E501
"""A small Verilog module with the accelerator's ports, to test the simulation itself.

START copies PROGRAM_BYTES bytes from INPUT_ADDRESS to OUTPUT_ADDRESS, inverted, one burst of four beats
at a time, and shows every beat on the trace port. Bits of the word at 0x60 break one rule each.
"""

from __future__ import annotations

STAND_IN = r"""
module espalier(
  input aclk, input aresetn, output interrupt,
  input [15:0] s_axi_ctrl_awaddr, input [2:0] s_axi_ctrl_awprot, input s_axi_ctrl_awvalid, output s_axi_ctrl_awready,
  input [31:0] s_axi_ctrl_wdata, input [3:0] s_axi_ctrl_wstrb, input s_axi_ctrl_wvalid, output s_axi_ctrl_wready,
  output [1:0] s_axi_ctrl_bresp, output reg s_axi_ctrl_bvalid, input s_axi_ctrl_bready,
  input [15:0] s_axi_ctrl_araddr, input [2:0] s_axi_ctrl_arprot, input s_axi_ctrl_arvalid, output s_axi_ctrl_arready,
  output reg [31:0] s_axi_ctrl_rdata, output [1:0] s_axi_ctrl_rresp, output reg s_axi_ctrl_rvalid,
  input s_axi_ctrl_rready,
  output m_axi_arid, output [39:0] m_axi_araddr, output [7:0] m_axi_arlen, output [2:0] m_axi_arsize,
  output [1:0] m_axi_arburst, output [3:0] m_axi_arcache, output [2:0] m_axi_arprot, output reg m_axi_arvalid,
  input m_axi_arready,
  input m_axi_rid, input [127:0] m_axi_rdata, input [1:0] m_axi_rresp, input m_axi_rlast, input m_axi_rvalid,
  output m_axi_rready,
  output m_axi_awid, output [39:0] m_axi_awaddr, output [7:0] m_axi_awlen, output [2:0] m_axi_awsize,
  output [1:0] m_axi_awburst, output [3:0] m_axi_awcache, output [2:0] m_axi_awprot, output reg m_axi_awvalid,
  input m_axi_awready,
  output [127:0] m_axi_wdata, output [15:0] m_axi_wstrb, output m_axi_wlast, output reg m_axi_wvalid,
  input m_axi_wready,
  input m_axi_bid, input [1:0] m_axi_bresp, input m_axi_bvalid, output m_axi_bready
);
  reg [31:0] regs [0:31];
  reg have_aw, have_w; reg [15:0] aw; reg [31:0] w;
  reg done, error, enable;
  reg [3:0] state; reg [31:0] position; reg [127:0] buffer [0:3]; reg [1:0] beat;
  reg trace_valid_0; reg [3:0] trace_bank_0; reg [12:0] trace_address_0; reg [127:0] trace_data_0;
  reg [7:0] trace_layer_0;
  reg trace_valid_1 = 0; reg [3:0] trace_bank_1; reg [12:0] trace_address_1; reg [127:0] trace_data_1;
  reg [7:0] trace_layer_1;

  assign s_axi_ctrl_awready = !have_aw, s_axi_ctrl_wready = !have_w, s_axi_ctrl_arready = !s_axi_ctrl_rvalid;
  assign s_axi_ctrl_bresp = 0, s_axi_ctrl_rresp = 0;
  assign interrupt = enable && done;
  assign m_axi_arid = 0, m_axi_arlen = 3, m_axi_arsize = 4, m_axi_arburst = 1, m_axi_arcache = 3, m_axi_arprot = 0;
  assign m_axi_awid = 0, m_axi_awlen = 3, m_axi_awsize = 4, m_axi_awburst = 1, m_axi_awcache = 3, m_axi_awprot = 0;
  assign m_axi_araddr = {regs['h34/4][7:0], regs['h30/4]} + position;
  assign m_axi_awaddr = {regs['h3c/4][7:0], regs['h38/4]} + position;
  assign m_axi_rready = state == 2;
  assign m_axi_wstrb = 16'hffff, m_axi_bready = state == 5;
  wire [3:0] broken = regs['h60/4][3:0];
  reg toggle; always @(posedge aclk) toggle <= !toggle && broken[1];
  assign m_axi_wlast = beat == (broken[0] ? 2 : 3);
  assign m_axi_wdata = ~buffer[beat] ^ toggle;

  always @(posedge aclk) begin
    trace_valid_0 <= 0;
    if (s_axi_ctrl_awvalid && s_axi_ctrl_awready) begin aw <= s_axi_ctrl_awaddr; have_aw <= 1; end
    if (s_axi_ctrl_wvalid && s_axi_ctrl_wready) begin w <= s_axi_ctrl_wdata; have_w <= 1; end
    if (have_aw && have_w && !s_axi_ctrl_bvalid) begin
      have_aw <= 0; have_w <= 0; s_axi_ctrl_bvalid <= 1;
      regs[aw[6:2]] <= w;
      if (aw == 16'h18) enable <= w[0];
      if (aw == 16'h10 && w[2]) done <= 0;
      if (aw == 16'h10 && w[1]) begin state <= 1; m_axi_arvalid <= 1; position <= 0; beat <= 0; done <= 0; error <= 0; end
    end
    if (s_axi_ctrl_bvalid && s_axi_ctrl_bready) s_axi_ctrl_bvalid <= 0;
    if (s_axi_ctrl_arvalid && s_axi_ctrl_arready) begin
      s_axi_ctrl_rvalid <= 1;
      s_axi_ctrl_rdata <= s_axi_ctrl_araddr == 16'h14 ? {28'd0, error, 1'b0, done, state != 0}
                        : s_axi_ctrl_araddr == 16'h50 ? state : regs[s_axi_ctrl_araddr[6:2]];
    end
    if (s_axi_ctrl_rvalid && s_axi_ctrl_rready) s_axi_ctrl_rvalid <= 0;
    if (broken[2] && m_axi_arvalid && !m_axi_arready) m_axi_arvalid <= 0;
    if (broken[2] && state == 1 && !m_axi_arvalid) m_axi_arvalid <= 1;
    if (state == 1 && m_axi_arvalid && m_axi_arready) begin m_axi_arvalid <= 0; state <= 2; end
    if (state == 2 && m_axi_rvalid) begin
      buffer[beat] <= m_axi_rdata; beat <= beat + 1; error <= error | m_axi_rresp[1];
      trace_valid_0 <= 1; trace_data_0 <= m_axi_rdata; trace_bank_0 <= beat; trace_address_0 <= position[16:4];
      trace_layer_0 <= position[13:6];
      if (m_axi_rlast) begin state <= 3; m_axi_awvalid <= 1; end
    end
    if (state == 3 && m_axi_awready) begin m_axi_awvalid <= 0; m_axi_wvalid <= 1; state <= 4; end
    if (state == 4 && m_axi_wready) begin
      beat <= beat + 1;
      if (beat == 3) begin m_axi_wvalid <= 0; state <= 5; end
    end
    if (state == 5 && m_axi_bvalid) begin
      position <= position + 64;
      if (position + 64 >= regs['h28/4]) begin
        state <= broken[3] ? 6 : 0; done <= !broken[3];
      end else begin state <= 1; m_axi_arvalid <= 1; end
    end
    if (!aresetn) begin
      have_aw <= 0; have_w <= 0; s_axi_ctrl_bvalid <= 0; s_axi_ctrl_rvalid <= 0; m_axi_arvalid <= 0; m_axi_awvalid <= 0;
      m_axi_wvalid <= 0; state <= 0; done <= 0; error <= 0; enable <= 0;
    end
  end
endmodule
"""


BREAK_REGISTER = 0x60
BREAK = {"LAST": 1, "PAYLOAD": 2, "VALID": 4, "DONE": 8}
