# Packaging of IP: pins and interfaces come from the Verilog.
namespace eval ipx {}
set model::core {}

# {name direction} of the ports of a module.
proc ports_of {path module} {
    set file [open $path]
    set text [read $file]
    close $file
    set start [string first "\nmodule ${module}(" \n$text]
    need [expr {$start >= 0}] "no module $module in $path"
    set body [string range $text $start [string first "\nendmodule" $text $start]]
    set found {}
    foreach {_ direction name} [regexp -all -line -inline {^\s*(input|output)\s+(?:wire\s+)?(?:\[[0-9:]+\]\s*)?(\w+);} $body] {
        dict set found $name [dict get {input I output O} $direction]
    }
    return $found
}
proc ipx::package_project {args} {
    project_is_open ipx::package_project
    lassign [options ipx::package_project $args {-import_files -force} {-root_dir -vendor -library -taxonomy}] given others
    require_options ipx::package_project $given {-root_dir -vendor -library -taxonomy -import_files -force}
    need [done order] "ipx::package_project before update_compile_order"
    need [regexp {^(/\w+)+$} [dict get $given -taxonomy]] "ipx::package_project: taxonomy [dict get $given -taxonomy]"
    set ports [ports_of [lindex [dict get $::model::project sources] 0] [dict get $::model::project top]]
    set interfaces {}
    set pins {}
    dict for {port direction} $ports {
        if {[regexp {^(\w+)_(aw|w|b|ar|r)(id|addr|len|size|burst|cache|prot|data|strb|last|resp|valid|ready)$} $port -> interface channel signal]} {
            if {"$channel$signal" eq "awvalid"} {
                dict set interfaces $interface [expr {$direction eq "I" ? "slave" : "master"}]
            }
        } else {
            set kind [expr {[string match *clk $port] ? "clock" : [string match *resetn $port] ? "reset_low" : "other"}]
            lappend pins $port $direction $kind
        }
    }
    set ::model::core [dict create root [dict get $given -root_dir] vendor [dict get $given -vendor] \
        library [dict get $given -library] pins $pins interfaces $interfaces clocked {} maps {} block {} registers {} \
        fields {} values {} interface_map {}]
    file delete -force [dict get $given -root_dir]
}
proc ipx::current_core {} {
    need [llength $::model::core] "ipx::current_core: nothing is packaged"
    return {core current}
}
proc core_option {command arguments {flags {}}} {
    lassign [options $command $arguments $flags {-of_objects}] given others
    require_options $command $given -of_objects
    return [list [dict get $given -of_objects] [one $command $others]]
}
proc ipx::associate_bus_interfaces {args} {
    lassign [options ipx::associate_bus_interfaces $args {} {-busif -clock}] given others
    require_options ipx::associate_bus_interfaces $given {-busif -clock}
    expect ipx::associate_bus_interfaces [one ipx::associate_bus_interfaces $others] core
    set interface [dict get $given -busif]
    need [dict exists $::model::core interfaces $interface] "the core has no interface $interface"
    set clocks [lmap {name direction kind} [dict get $::model::core pins] {expr {$kind eq "clock" ? $name : [continue]}}]
    need [expr {[dict get $given -clock] in $clocks}] "the core has no clock [dict get $given -clock]"
    dict set ::model::core clocked $interface [dict get $given -clock]
}
proc ipx::infer_bus_interface {port type object} {
    expect ipx::infer_bus_interface $object core
    need [expr {$type eq "xilinx.com:signal:interrupt_rtl:1.0"}] "ipx::infer_bus_interface: type $type"
    set pins {}
    foreach {name direction kind} [dict get $::model::core pins] {
        if {$name eq $port} {
            need [expr {$direction eq "O" && $kind eq "other"}] "$port is no interrupt"
            set kind interrupt
            set hit 1
        }
        lappend pins $name $direction $kind
    }
    need [info exists hit] "the core has no port $port"
    dict set ::model::core pins $pins
}
proc ipx::add_user_parameter {name object} {
    expect ipx::add_user_parameter $object core
    need [expr {![dict exists $::model::core values $name]}] "parameter $name twice"
    dict set ::model::core values $name {}
    return [list parameter $name]
}
proc ipx::get_memory_maps {args} {
    lassign [core_option ipx::get_memory_maps $args] object name
    expect ipx::get_memory_maps $object core
    return ""
}
proc ipx::add_memory_map {name object} {
    expect ipx::add_memory_map $object core
    dict set ::model::core maps $name {}
    return [list map $name]
}
proc ipx::get_bus_interfaces {args} {
    lassign [core_option ipx::get_bus_interfaces $args] object name
    expect ipx::get_bus_interfaces $object core
    need [dict exists $::model::core interfaces $name] "the core has no interface $name"
    return [list interface $name]
}
proc ipx::get_address_blocks {args} {
    lassign [core_option ipx::get_address_blocks $args] object name
    expect ipx::get_address_blocks $object map
    return ""
}
proc ipx::add_address_block {name map} {
    dict set ::model::core block name $name
    dict set ::model::core block map [expect ipx::add_address_block $map map]
    return [list block $name]
}
proc ipx::add_register {name block} {
    expect ipx::add_register $block block
    need [expr {![dict exists $::model::core registers $name]}] "register $name twice"
    dict set ::model::core registers $name {}
    return [list register $name]
}
proc ipx::add_field {name register} {
    set key [list [expect ipx::add_field $register register] $name]
    need [expr {![dict exists $::model::core fields $key]}] "field $key twice"
    dict set ::model::core fields $key {}
    return [list field $key]
}
proc ipx::create_xgui_files {object} {
    expect ipx::create_xgui_files $object core
    dict set ::model::core xgui 1
}
proc ipx::update_checksums {object} {
    expect ipx::update_checksums $object core
    need [dict exists $::model::core xgui] "ipx::update_checksums before ipx::create_xgui_files"
    dict set ::model::core checksums 1
}
# Every property must be there, offsets and bits may not overlap.
proc ipx::check_integrity {object} {
    expect ipx::check_integrity $object core
    require_keys core $::model::core {name version display_name supported_families checksums}
    require_keys "address block" [dict get $::model::core block] {name map range width usage}
    set interface [dict get $::model::core block map]
    need [dict exists $::model::core interface_map $interface] "memory map $interface belongs to no interface"
    foreach name [dict keys [dict get $::model::core interfaces]] {
        need [dict exists $::model::core clocked $name] "interface $name has no clock"
    }
    need [expr {"interrupt" in [dict get $::model::core pins]}] "the core has no interrupt"
    set seen {}
    dict for {name register} [dict get $::model::core registers] {
        require_keys "register $name" $register {address_offset size access description}
        set offset [expr {[dict get $register address_offset]}]
        need [expr {$offset % 4 == 0 && $offset ni $seen}] "register $name: offset $offset is taken or no multiple of 4"
        need [expr {$offset < [dict get $::model::core block range]}] "register $name lies outside its block"
        lappend seen $offset
    }
    need [llength $seen] "the core has no registers"
    set seen {}
    dict for {key field} [dict get $::model::core fields] {
        require_keys "field $key" $field {bit_offset bit_width access}
        set place [list [lindex $key 0] [dict get $field bit_offset]]
        need [expr {$place ni $seen && [dict get $field bit_offset] < 32}] "field $key: bit is taken or above 31"
        lappend seen $place
    }
    dict for {name parameter} [dict get $::model::core values] {
        require_keys "parameter $name" $parameter {value value_resolve_type value_format}
    }
    dict set ::model::core checked 1
    return [expr {$::model::fault ne "integrity"}]
}
proc require_keys {what dictionary keys} {
    foreach key $keys {
        need [dict exists $dictionary $key] "$what has no $key"
    }
}
proc ipx::save_core {object} {
    expect ipx::save_core $object core
    need [dict exists $::model::core checked] "ipx::save_core of a core that was not checked"
    dict set ::model::core vlnv [join [lmap key {vendor library name version} {dict get $::model::core $key}] :]
    dict set ::model::core segments [dict get $::model::core block map]/[dict get $::model::core block name]
    dict set ::model::core spaces [lmap {name role} [dict get $::model::core interfaces] {expr {$role eq "master" ? $name : [continue]}}]
    dict set ::model::core parameters {}
    file mkdir [dict get $::model::core root]
    set file [open [dict get $::model::core root]/component.xml w]
    puts -nonewline $file $::model::core
    close $file
}
