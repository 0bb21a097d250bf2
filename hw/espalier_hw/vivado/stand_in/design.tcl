# Block designs: cells, nets, addresses, and what makes a design valid.
proc create_bd_design {name} {
    need [dict exists $::model::project board_part] "create_bd_design before board_part: the preset needs one"
    dict set ::model::project bd $name
}
proc create_bd_cell {args} {
    lassign [options create_bd_cell $args {} {-type -vlnv}] given others
    require_options create_bd_cell $given {-type -vlnv}
    set cell [one create_bd_cell $others]
    need [expr {[dict get $given -type] eq "ip"}] "create_bd_cell: type [dict get $given -type]"
    need [expr {![dict exists $::model::project cells $cell]}] "cell $cell exists already"
    set ip [lindex [split [dict get $given -vlnv] :] 2]
    need [expr {[dict exists [ips] $ip] && [dict get [ips] $ip vlnv] eq [dict get $given -vlnv]}] "no IP [dict get $given -vlnv]"
    dict set ::model::project cells $cell $ip
    dict unset ::model::project done valid
}
proc entry_of {cell} {
    need [dict exists $::model::project cells $cell] "no cell $cell"
    return [dict get [ips] [dict get $::model::project cells $cell]]
}
proc get_bd_cells {cell} {
    entry_of $cell
    return [list cell $cell]
}
proc apply_bd_automation {args} {
    lassign [options apply_bd_automation $args {} {-rule -config}] given others
    require_options apply_bd_automation $given {-rule -config}
    set cell [expect apply_bd_automation [one apply_bd_automation $others] cell]
    set ip [dict get $::model::project cells $cell]
    need [expr {[dict get $given -rule] eq "xilinx.com:bd_rule:$ip"}] "rule [dict get $given -rule] is not for $ip"
    set expected [dict get [entry_of $cell] rule]
    need [expr {[lsort -stride 2 [dict get $given -config]] eq [lsort -stride 2 $expected]}] \
        "apply_bd_automation: configuration [dict get $given -config]"
    mark preset
}
# The kind of a pin or interface, and its direction or role.
proc get_bd_pins {path} {
    lassign [split $path /] cell pin
    foreach {name direction kind} [dict get [entry_of $cell] pins] {
        if {$name eq $pin} {
            return [list pin $path $direction $kind]
        }
    }
    error "no pin $path"
}
proc get_bd_intf_pins {path} {
    lassign [split $path /] cell name
    need [dict exists [entry_of $cell] interfaces $name] "no interface $path"
    return [list interface $path [dict get [entry_of $cell] interfaces $name]]
}
proc connect_bd_net {from to} {
    expect connect_bd_net $from pin
    expect connect_bd_net $to pin
    lassign $from _ source direction kind
    lassign $to _ sink sink_direction sink_kind
    need [expr {$direction eq "O"}] "$source drives nothing"
    need [expr {$sink_direction eq "I"}] "two drivers: $source and $sink"
    need [expr {$kind eq $sink_kind}] "$source is a $kind, $sink a $sink_kind"
    need [expr {![dict exists $::model::project nets $sink]}] "$sink has a driver already"
    dict set ::model::project nets $sink $source
    dict unset ::model::project done valid
}
proc connect_bd_intf_net {from to} {
    lassign $from _ master role
    lassign $to _ slave slave_role
    expect connect_bd_intf_net $from interface
    expect connect_bd_intf_net $to interface
    need [expr {"$role $slave_role" eq "master slave"}] "$master is a $role, $slave a $slave_role"
    foreach end [list $master $slave] {
        need [expr {$end ni [dict values [dict get $::model::project links]] && ![dict exists $::model::project links $end]}] \
            "$end is connected already"
    }
    dict set ::model::project links $master $slave
    dict unset ::model::project done valid
}
proc get_bd_addr_spaces {path} {
    lassign [split $path /] cell space
    need [expr {$space in [dict get [entry_of $cell] spaces]}] "no address space $path"
    return [list space $path]
}
proc get_bd_addr_segs {path} {
    set cell [lindex [split $path /] 0]
    set segment [string range $path [string length $cell]+1 end]
    need [expr {$segment in [dict get [entry_of $cell] segments]}] "no address segment $path"
    return [list segment $path]
}
proc assign_bd_address {args} {
    lassign [options assign_bd_address $args {} {-offset -range -target_address_space}] given others
    require_options assign_bd_address $given -target_address_space
    set space [expect assign_bd_address [dict get $given -target_address_space] space]
    set segment [expect assign_bd_address [one assign_bd_address $others] segment]
    need [expr {![dict exists $::model::project addresses $segment]}] "$segment has an address already"
    set base -1
    set bytes 0
    if {[string match */Data $space]} {
        require_options assign_bd_address $given {-offset -range}
        set base [expr {[dict get $given -offset]}]
        set bytes [expr {[dict get $given -range]}]
        lassign [dict get [entry_of [lindex [split $space /] 0]] aperture] low high
        need [expr {$bytes >= 4096 && ($bytes & ($bytes - 1)) == 0 && $base % $bytes == 0}] "$segment: address and range do not fit"
        need [expr {$base >= $low && $base + $bytes <= $high}] "$segment lies outside the aperture"
        dict for {other place} [dict get $::model::project addresses] {
            lassign $place _ first size
            need [expr {$size == 0 || $base + $bytes <= $first || $first + $size <= $base}] "$segment overlaps $other"
        }
    }
    dict set ::model::project addresses $segment [list $space $base $bytes]
    dict unset ::model::project done valid
}

# Ports of interconnects and concatenations that their configuration leaves out.
proc absent {cell name} {
    foreach {pattern parameter} {In(\\d+) NUM_PORTS S(\\d+)_AXI NUM_SI M(\\d+)_AXI NUM_MI} {
        if {[dict exists [entry_of $cell] parameters $parameter] && [regexp "^$pattern\$" $name -> index]} {
            return [expr {[scan $index %d] >= [dict get $::model::project config $cell $parameter]}]
        }
    }
    return 0
}
proc validate_bd_design {} {
    set links [dict get $::model::project links]
    need [done preset] "validate: the processing system has no board preset"
    dict for {cell ip} [dict get $::model::project cells] {
        set entry [entry_of $cell]
        foreach name [dict keys [dict get $entry parameters]] {
            need [dict exists $::model::project config $cell $name] "validate: $cell has no $name"
        }
        foreach {pin direction kind} [dict get $entry pins] {
            need [expr {$direction eq "O" || [absent $cell $pin] || [dict exists $::model::project nets $cell/$pin]}] \
                "validate: $cell/$pin is open"
        }
        foreach interface [dict keys [dict get $entry interfaces]] {
            set there [expr {[dict exists $links $cell/$interface] || "$cell/$interface" in [dict values $links]}]
            need [expr {$there || [absent $cell $interface]}] "validate: $cell/$interface is open"
        }
        set is_system [dict exists $entry aperture]
        foreach segment [dict get $entry segments] {
            need [expr {$is_system || [dict exists $::model::project addresses $cell/$segment]}] "validate: $cell/$segment has no address"
        }
        foreach space [dict get $entry spaces] {
            set mapped [lmap place [dict values [dict get $::model::project addresses]] {lindex $place 0}]
            need [expr {"$cell/$space" in $mapped}] "validate: $cell/$space reaches nothing"
        }
    }
    foreach pattern $::model::high_memory {
        set lost [expr {[string match $pattern [dict get $::model::project board_part]]
            && ![string match *HP0_DDR_HIGH* [dict get $::model::project addresses]]}]
        need [expr {!$lost}] "validate: the memory above 4 GiB is not mapped"
    }
    mark valid
}
proc save_bd_design {} {
    need [done valid] "save_bd_design of a design that is not valid"
    mark saved
}
