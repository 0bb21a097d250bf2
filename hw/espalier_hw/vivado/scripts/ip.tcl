# Stage `ip`: packages the Verilog with its register map. A module reference would lose the map in the .hwh.
source [file dirname [info script]]/common.tcl
source $folder/scripts/registers.tcl

if {[package vcompare [lindex [split [version -short] _] 0] 2022.1] < 0} {
    fail "Vivado [version -short] is older than 2022.1"
}
if {[llength [get_parts [setting part]]] == 0} {
    fail "part [setting part] is not installed in this Vivado"
}
create_project -force ip_project $work/ip_project -part [setting part]
add_files -norecurse $folder/espalier.v
set_property top espalier [current_fileset]
update_compile_order -fileset sources_1

lassign [split [setting vlnv] :] vendor library name version
ipx::package_project -root_dir $work/ip_repo/$name -vendor $vendor -library $library -taxonomy /UserIP -import_files -force
set core [ipx::current_core]
set_property name $name $core
set_property version $version $core
set_property display_name "Espalier accelerator" $core
set_property supported_families {zynquplus Production zynq Production} $core
ipx::associate_bus_interfaces -busif s_axi_ctrl -clock aclk $core
ipx::associate_bus_interfaces -busif m_axi -clock aclk $core
ipx::infer_bus_interface [setting interrupt_pin] xilinx.com:signal:interrupt_rtl:1.0 $core

# What the driver reads from the .hwh: for which clock timing was closed, and which design this is.
foreach {parameter value} [setting parameters] {
    set object [ipx::add_user_parameter $parameter $core]
    set_property value_resolve_type user $object
    set_property value_format string $object
    set_property value $value $object
}

set map [ipx::get_memory_maps s_axi_ctrl -of_objects $core]
if {$map eq ""} {
    set map [ipx::add_memory_map s_axi_ctrl $core]
    set_property slave_memory_map_ref s_axi_ctrl [ipx::get_bus_interfaces s_axi_ctrl -of_objects $core]
}
set block [ipx::get_address_blocks reg0 -of_objects $map]
if {$block eq ""} {
    set block [ipx::add_address_block reg0 $map]
}
set_property range [setting register_bytes] $block
set_property width 32 $block
set_property usage register $block
foreach {register offset access description fields} $registers {
    set object [ipx::add_register $register $block]
    set_property address_offset $offset $object
    set_property size 32 $object
    set_property access $access $object
    set_property description $description $object
    foreach {field lowest_bit} $fields {
        set bits [ipx::add_field $field $object]
        set_property bit_offset $lowest_bit $bits
        set_property bit_width 1 $bits
        set_property access $access $bits
    }
}
ipx::create_xgui_files $core
ipx::update_checksums $core
if {![ipx::check_integrity $core]} {
    fail "the packaged IP does not pass Vivado's integrity check"
}
ipx::save_core $core
close_project
