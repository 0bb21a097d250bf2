// AXI4-Lite master: one register access at a time, with stalls on every channel and checks of the answers.
#pragma once
#include "protocol.hpp"

template <typename Top>
class Control {
public:
    void seed(uint64_t seed) {
        Stall* stalls[] = {&aw_stall_, &w_stall_, &b_stall_, &ar_stall_, &r_stall_};
        for (uint64_t i = 0; i < 5; i++) stalls[i]->seed(seed, 16 + i);
    }
    void reset() {
        aw_open_ = w_open_ = b_open_ = ar_open_ = r_open_ = false;
        aw_valid_ = w_valid_ = ar_valid_ = false;
        b_.reset();
        r_.reset();
    }
    void start_write(uint32_t address, uint32_t value) {
        address_ = address;
        value_ = value;
        aw_open_ = w_open_ = b_open_ = true;
    }
    void start_read(uint32_t address) {
        address_ = address;
        ar_open_ = r_open_ = true;
    }
    bool busy() const { return b_open_ || r_open_; }
    uint32_t value() const { return value_; }
    uint32_t response() const { return response_; }

    void drive(Top& top) {
        if (aw_open_ && !aw_valid_) aw_valid_ = !aw_stall_();
        if (w_open_ && !w_valid_) w_valid_ = !w_stall_();
        if (ar_open_ && !ar_valid_) ar_valid_ = !ar_stall_();
        top.s_axi_ctrl_awvalid = aw_valid_;
        top.s_axi_ctrl_awaddr = address_;
        top.s_axi_ctrl_wvalid = w_valid_;
        top.s_axi_ctrl_wdata = value_;
        top.s_axi_ctrl_wstrb = 15;
        top.s_axi_ctrl_arvalid = ar_valid_;
        top.s_axi_ctrl_araddr = address_;
        top.s_axi_ctrl_bready = b_open_ && !b_stall_();
        top.s_axi_ctrl_rready = r_open_ && !r_stall_();
    }

    void sample(const Top& top, uint64_t now, Report& report) {
        b_.observe(top.s_axi_ctrl_bvalid, top.s_axi_ctrl_bready, {top.s_axi_ctrl_bresp}, now, report);
        r_.observe(top.s_axi_ctrl_rvalid, top.s_axi_ctrl_rready,
                   {top.s_axi_ctrl_rdata, top.s_axi_ctrl_rresp}, now, report);
        if (top.s_axi_ctrl_bvalid && (!b_open_ || aw_open_ || w_open_))
            report(now, "control B: VALID before address and data were taken");
        if (top.s_axi_ctrl_rvalid && (!r_open_ || ar_open_))
            report(now, "control R: VALID before the address was taken");
        if (aw_valid_ && top.s_axi_ctrl_awready) aw_valid_ = aw_open_ = false;
        if (w_valid_ && top.s_axi_ctrl_wready) w_valid_ = w_open_ = false;
        if (ar_valid_ && top.s_axi_ctrl_arready) ar_valid_ = ar_open_ = false;
        if (top.s_axi_ctrl_bvalid && top.s_axi_ctrl_bready) {
            b_open_ = false;
            response_ = top.s_axi_ctrl_bresp;
        }
        if (top.s_axi_ctrl_rvalid && top.s_axi_ctrl_rready) {
            r_open_ = false;
            response_ = top.s_axi_ctrl_rresp;
            value_ = top.s_axi_ctrl_rdata;
        }
    }

    std::string state() const { return "control " + b_.state() + ", control " + r_.state(); }

private:
    uint32_t address_ = 0, value_ = 0, response_ = 0;
    bool aw_open_ = false, w_open_ = false, b_open_ = false, ar_open_ = false, r_open_ = false;
    bool aw_valid_ = false, w_valid_ = false, ar_valid_ = false;
    Stall aw_stall_, w_stall_, b_stall_, ar_stall_, r_stall_;
    Handshake<1> b_{"B"};
    Handshake<2> r_{"R"};
};
