# Stage `design`: processing system, accelerator, interconnects, interrupt controller, addresses.
source [file dirname [info script]]/common.tcl

set board_part [lindex [lsort -dictionary [get_board_parts [setting board_part]]] end]
if {$board_part eq ""} {
    fail "no board files match [setting board_part]: install them (xhub::install, or board.repoPaths)"
}
create_project -force project $work/project -part [setting part]
set_property board_part $board_part [current_project]
set_property ip_repo_paths $work/ip_repo [current_project]
update_ip_catalog -rebuild
create_bd_design espalier

# The two families differ in names only.
set ps [setting system]_0
set mhz [setting clock_mhz]
create_bd_cell -type ip -vlnv [newest_ip [setting system]] $ps
if {[setting system] eq "zynq_ultra_ps_e"} {
    apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset "1"} [get_bd_cells $ps]
    set_property -dict [list \
        CONFIG.PSU__USE__M_AXI_GP0 1 \
        CONFIG.PSU__USE__M_AXI_GP1 0 \
        CONFIG.PSU__USE__M_AXI_GP2 0 \
        CONFIG.PSU__USE__S_AXI_GP2 1 \
        CONFIG.PSU__SAXIGP2__DATA_WIDTH [setting hp_bits] \
        CONFIG.PSU__USE__IRQ0 1 \
        CONFIG.PSU__FPGA_PL0_ENABLE 1 \
        CONFIG.PSU__CRL_APB__PL0_REF_CTRL__SRCSEL IOPLL \
        CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $mhz \
    ] [get_bd_cells $ps]
    set actual [get_property CONFIG.PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ [get_bd_cells $ps]]
    lassign {pl_clk0 pl_resetn0 M_AXI_HPM0_FPD S_AXI_HP0_FPD pl_ps_irq0} clock reset master slave interrupt
    set port_clocks {maxihpm0_fpd_aclk saxihp0_fpd_aclk}
    set memories SAXIGP2/HP0_DDR_LOW
    if {[setting has_high_ddr]} {
        lappend memories SAXIGP2/HP0_DDR_HIGH
    }
} else {
    apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 \
        -config {make_external "FIXED_IO, DDR" apply_board_preset "1" Master "Disable" Slave "Disable"} [get_bd_cells $ps]
    set_property -dict [list \
        CONFIG.PCW_USE_M_AXI_GP0 1 \
        CONFIG.PCW_USE_S_AXI_HP0 1 \
        CONFIG.PCW_S_AXI_HP0_DATA_WIDTH [setting hp_bits] \
        CONFIG.PCW_USE_FABRIC_INTERRUPT 1 \
        CONFIG.PCW_IRQ_F2P_INTR 1 \
        CONFIG.PCW_EN_CLK0_PORT 1 \
        CONFIG.PCW_FCLK0_PERIPHERAL_CLKSRC {IO PLL} \
        CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $mhz \
    ] [get_bd_cells $ps]
    set actual [get_property CONFIG.PCW_ACT_FPGA0_PERIPHERAL_FREQMHZ [get_bd_cells $ps]]
    lassign {FCLK_CLK0 FCLK_RESET0_N M_AXI_GP0 S_AXI_HP0 IRQ_F2P} clock reset master slave interrupt
    set port_clocks {M_AXI_GP0_ACLK S_AXI_HP0_ACLK}
    set memories S_AXI_HP0/HP0_DDR_LOWOCM
}
if {$actual > $mhz * 1.001} {
    fail "the processing system makes $actual MHz of the $mhz MHz asked for: choose another --clock-mhz"
}

create_bd_cell -type ip -vlnv [setting vlnv] espalier_0
create_bd_cell -type ip -vlnv [newest_ip proc_sys_reset] reset_0
create_bd_cell -type ip -vlnv [newest_ip smartconnect] control_0
create_bd_cell -type ip -vlnv [newest_ip smartconnect] memory_0
create_bd_cell -type ip -vlnv [newest_ip axi_intc] axi_intc_0
# PYNQ follows interrupts through an xlconcat only, not through the newer ilconcat, and needs a controller.
create_bd_cell -type ip -vlnv [newest_ip xlconcat] xlconcat_0
set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 2} [get_bd_cells control_0]
set_property -dict {CONFIG.NUM_SI 1 CONFIG.NUM_MI 1} [get_bd_cells memory_0]
set_property CONFIG.NUM_PORTS 1 [get_bd_cells xlconcat_0]
set_property CONFIG.C_IRQ_CONNECTION 1 [get_bd_cells axi_intc_0]

foreach {from to} [list \
    $ps/$master control_0/S00_AXI \
    control_0/M00_AXI espalier_0/s_axi_ctrl \
    control_0/M01_AXI axi_intc_0/s_axi \
    espalier_0/m_axi memory_0/S00_AXI \
    memory_0/M00_AXI $ps/$slave \
] {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}
set clocked {reset_0/slowest_sync_clk espalier_0/aclk control_0/aclk memory_0/aclk axi_intc_0/s_axi_aclk}
foreach pin $port_clocks {
    lappend clocked $ps/$pin
}
foreach pin $clocked {
    connect_bd_net [get_bd_pins $ps/$clock] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins $ps/$reset] [get_bd_pins reset_0/ext_reset_in]
foreach pin {espalier_0/aresetn axi_intc_0/s_axi_aresetn} {
    connect_bd_net [get_bd_pins reset_0/peripheral_aresetn] [get_bd_pins $pin]
}
foreach pin {control_0/aresetn memory_0/aresetn} {
    connect_bd_net [get_bd_pins reset_0/interconnect_aresetn] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins espalier_0/[setting interrupt_pin]] [get_bd_pins xlconcat_0/In0]
connect_bd_net [get_bd_pins xlconcat_0/dout] [get_bd_pins axi_intc_0/intr]
connect_bd_net [get_bd_pins axi_intc_0/irq] [get_bd_pins $ps/$interrupt]

set processor [get_bd_addr_spaces $ps/Data]
assign_bd_address -offset [setting accelerator_address] -range [setting register_bytes] \
    -target_address_space $processor [get_bd_addr_segs espalier_0/s_axi_ctrl/reg0]
assign_bd_address -offset [setting controller_address] -range [setting register_bytes] \
    -target_address_space $processor [get_bd_addr_segs axi_intc_0/S_AXI/Reg]
foreach memory $memories {
    assign_bd_address -target_address_space [get_bd_addr_spaces espalier_0/m_axi] [get_bd_addr_segs $ps/$memory]
}

validate_bd_design
save_bd_design
set diagram [get_files espalier.bd]
generate_target all $diagram
add_files -norecurse [make_wrapper -files $diagram -top]
set_property top espalier_wrapper [current_fileset]
add_files -fileset constrs_1 -norecurse $folder/scripts/constraints.xdc
update_compile_order -fileset sources_1

# Releases keep the description in one of two places.
set found [glob -nocomplain $work/project/project.{gen,srcs}/sources_1/bd/espalier/hw_handoff/espalier.hwh]
if {[llength $found] == 0} {
    fail "Vivado has not written espalier.hwh"
}
file copy -force [lindex $found 0] $work/espalier.hwh
close_project
