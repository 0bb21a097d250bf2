# Properties by kind of object, with a pattern of the values that are known to be right.
set model::properties {
    project {board_part {\S+} ip_repo_paths {\S+}}
    fileset {top {\w+}}
    core {name {\w+} version {\d+\.\d+} display_name {.+} supported_families {(zynquplus|zynq) Production( (zynquplus|zynq) Production)*}}
    interface {slave_memory_map_ref {\w+}}
    block {range {(0x)?[0-9A-Fa-f]+} width 32 usage register}
    register {address_offset {(0x)?[0-9A-Fa-f]+} size 32 access {read-only|write-only|read-write} description {.+}}
    field {bit_offset {\d+} bit_width {\d+} access {read-only|write-only|read-write}}
    parameter {value {.+} value_resolve_type user value_format string}
    run {STEPS.POST_ROUTE_PHYS_OPT_DESIGN.IS_ENABLED {true|false}}
}

proc set_property {args} {
    lassign [options set_property $args {} {-dict}] given others
    if {[dict exists $given -dict]} {
        one set_property $others
        set_all [dict get $given -dict] [lindex $others 0]
    } else {
        one set_property $others 3
        set_all [lrange $others 0 1] [lindex $others 2]
    }
}
proc set_all {pairs object} {
    need [expr {[llength $pairs] % 2 == 0}] "set_property: a name without a value in $pairs"
    lassign $object kind name
    need [expr {$kind ne ""}] "set_property: no object for $pairs"
    foreach {property value} $pairs {
        if {$kind eq "cell"} {
            set_config $name $property $value
            continue
        }
        need [dict exists $::model::properties $kind $property] "a $kind has no property $property"
        set pattern [dict get $::model::properties $kind $property]
        need [regexp "^(?:$pattern)\$" $value] "property $property of a $kind cannot be '$value'"
        store $kind $name $property $value
    }
}
proc store {kind name property value} {
    switch $kind {
        core {dict set ::model::core $property $value}
        block {dict set ::model::core block $property $value}
        register {dict set ::model::core registers $name $property $value}
        field {dict set ::model::core fields $name $property $value}
        parameter {dict set ::model::core values $name $property $value}
        interface {
            need [dict exists $::model::core maps $value] "the core has no memory map $value"
            dict set ::model::core interface_map $name $value
        }
        run {mark $property}
        default {
            dict set ::model::project $property $value
            if {$property eq "top"} {
                dict unset ::model::project done order
            } elseif {$property eq "board_part"} {
                need [expr {$value in $::model::board_files}] "no board $value"
            }
        }
    }
}
proc set_config {cell property value} {
    set known [dict get [ips] [dict get $::model::project cells $cell] parameters]
    need [regexp {^CONFIG\.(\w+)$} $property -> name] "a cell has no property $property"
    need [dict exists $known $name] "$cell has no parameter $name"
    need [regexp "^(?:[dict get $known $name])\$" $value] "parameter $name of $cell cannot be '$value'"
    dict set ::model::project config $cell $name $value
    dict unset ::model::project done valid
}
proc get_property {property object} {
    switch [lindex $object 0] {
        run {
            need [expr {$property eq "PROGRESS"}] "get_property: unknown property $property of a run"
            set failed [expr {$::model::fault in [list progress [dict get {synth_1 none impl_1 unrouted} [lindex $object 1]]]}]
            return [expr {!$failed && [done waited_[lindex $object 1]] ? "100%" : "0%"}]
        }
        path {
            need [expr {$property eq "SLACK"}] "get_property: unknown property $property of a path"
            return [expr {$::model::fault eq [lindex $object 1] ? "-0.214" : "0.123"}]
        }
        cell {
            set entry [dict get [ips] [dict get $::model::project cells [lindex $object 1]]]
            need [expr {[dict exists $entry actual] && $property eq "CONFIG.[dict get $entry actual]"}] \
                "get_property: unknown property $property of [lindex $object 1]"
            return [actual_mhz [lindex $object 1] $entry]
        }
        default {
            need [expr {$::model::fault eq "no_paths" && $object eq ""}] "get_property: '$object' is no object"
            return ""
        }
    }
}
# Frequency that a processing system makes: a whole divisor of its PLL, the nearest one.
proc actual_mhz {cell entry} {
    set asked [dict get $::model::project config $cell [dict get $entry frequency]]
    set pll [expr {double([dict get $entry pll])}]
    set actual [expr {$pll / max(1, round($pll / $asked))}]
    return [expr {$::model::fault eq "clock" ? 1.1 * $actual : $actual}]
}
