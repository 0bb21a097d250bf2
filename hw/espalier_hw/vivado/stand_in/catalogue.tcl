# IPs as Vivado's catalogue describes them: version; pins {name direction kind}; interfaces {name role};
# segments; address spaces; parameters that scripts may set, with a pattern of their values; what must be set.
set model::catalogue {
    zynq_ultra_ps_e {
        version 3.5
        pins {
            pl_clk0 O clock pl_resetn0 O reset_low maxihpm0_fpd_aclk I clock saxihp0_fpd_aclk I clock
            pl_ps_irq0 I interrupt
        }
        interfaces {M_AXI_HPM0_FPD master S_AXI_HP0_FPD slave}
        segments {SAXIGP2/HP0_DDR_LOW SAXIGP2/HP0_DDR_HIGH SAXIGP2/HP0_QSPI SAXIGP2/HP0_LPS_OCM}
        spaces Data
        aperture {0xA0000000 0xB0000000}
        parameters {
            PSU__USE__M_AXI_GP0 1 PSU__USE__M_AXI_GP1 0 PSU__USE__M_AXI_GP2 0 PSU__USE__S_AXI_GP2 1
            PSU__SAXIGP2__DATA_WIDTH 128 PSU__USE__IRQ0 1 PSU__FPGA_PL0_ENABLE 1
            PSU__CRL_APB__PL0_REF_CTRL__SRCSEL IOPLL PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {\d+(\.\d+)?}
        }
        optional {}
        frequency PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ
        actual PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ
        pll 1500
        rule {apply_board_preset 1}
    }
    processing_system7 {
        version 5.5
        pins {
            FCLK_CLK0 O clock FCLK_RESET0_N O reset_low M_AXI_GP0_ACLK I clock S_AXI_HP0_ACLK I clock
            IRQ_F2P I interrupt
        }
        interfaces {M_AXI_GP0 master S_AXI_HP0 slave}
        segments {S_AXI_HP0/HP0_DDR_LOWOCM}
        spaces Data
        aperture {0x40000000 0x80000000}
        parameters {
            PCW_USE_M_AXI_GP0 1 PCW_USE_S_AXI_HP0 1 PCW_S_AXI_HP0_DATA_WIDTH 64 PCW_USE_FABRIC_INTERRUPT 1
            PCW_IRQ_F2P_INTR 1 PCW_EN_CLK0_PORT 1 PCW_FCLK0_PERIPHERAL_CLKSRC {IO PLL}
            PCW_FPGA0_PERIPHERAL_FREQMHZ {\d+(\.\d+)?}
        }
        optional {}
        frequency PCW_FPGA0_PERIPHERAL_FREQMHZ
        actual PCW_ACT_FPGA0_PERIPHERAL_FREQMHZ
        pll 1000
        rule {make_external {FIXED_IO, DDR} apply_board_preset 1 Master Disable Slave Disable}
    }
    proc_sys_reset {
        version 5.0
        pins {
            slowest_sync_clk I clock ext_reset_in I reset_low peripheral_aresetn O reset_low
            interconnect_aresetn O reset_low peripheral_reset O reset_high mb_reset O reset_high
        }
        interfaces {} segments {} spaces {} parameters {}
    }
    smartconnect {
        version 1.0
        pins {aclk I clock aresetn I reset_low}
        interfaces {S00_AXI slave S01_AXI slave M00_AXI master M01_AXI master}
        segments {} spaces {}
        parameters {NUM_SI [12] NUM_MI [12]}
    }
    axi_intc {
        version 4.1
        pins {s_axi_aclk I clock s_axi_aresetn I reset_low intr I interrupt irq O interrupt}
        interfaces {s_axi slave}
        segments {S_AXI/Reg}
        spaces {}
        parameters {C_IRQ_CONNECTION 1}
    }
    xlconcat {
        version 2.1
        pins {In0 I interrupt In1 I interrupt dout O interrupt}
        interfaces {} segments {} spaces {}
        parameters {NUM_PORTS [12]}
    }
}
dict for {name entry} $model::catalogue {
    dict set model::catalogue $name vlnv xilinx.com:ip:$name:[dict get $entry version]
}

set model::board_files {
    xilinx.com:zcu104:part0:1.1 xilinx.com:kv260_som:part0:1.3 xilinx.com:kv260_som:part0:1.4
    avnet.com:ultra96v2:part0:1.2 tul.com.tw:pynq-z2:part0:1.0
}
# Boards with memory above 4 GiB, of which a master must not lose the upper part.
set model::high_memory {xilinx.com:kv260_som:*}
set model::parts {xczu7ev-ffvc1156-2-e xck26-sfvc784-2LV-c xczu3eg-sbva484-1-i xc7z020clg400-1}
