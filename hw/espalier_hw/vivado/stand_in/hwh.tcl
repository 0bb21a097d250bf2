# The .hwh of a block design: what PYNQ reads, with names, addresses, nets and registers as the script made them.
proc quoted {text} {
    return [string map {& &amp; < &lt; > &gt; \" &quot;} $text]
}
proc element {tag attributes {children {}}} {
    set text "<$tag"
    foreach {name value} $attributes {
        append text " $name=\"[quoted $value]\""
    }
    return "$text>[join $children ""]</$tag>\n"
}
proc write_hwh {path} {
    set modules [lmap {cell ip} [dict get $::model::project cells] {module_of $cell $ip}]
    set root [element EDKSYSTEM {EDWVERSION 1.2 VIVADOVERSION 2024.1} [list \
        [element SYSTEMINFO [list NAME [dict get $::model::project bd] DEVICE [dict get $::model::project part] BOARD [dict get $::model::project board_part]]] \
        [element EXTERNALPORTS {}] [element MODULES {} $modules]]]
    set file [open $path w]
    puts $file "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n$root"
    close $file
}
proc module_of {cell ip} {
    set entry [entry_of $cell]
    set parts [list [registers_of $entry] [element PARAMETERS {} [parameters_of $cell $entry]]]
    lappend parts [element PORTS {} [ports_of_cell $cell $entry]]
    set interfaces {}
    dict for {name role} [dict get $entry interfaces] {
        lappend interfaces [element BUSINTERFACE [list NAME $name TYPE [string toupper $role] VLNV xilinx.com:interface:aximm:1.0]]
    }
    lappend parts [element BUSINTERFACES {} $interfaces]
    if {[dict exists $entry aperture]} {
        lappend parts [element MEMORYMAP {} [ranges_of $cell $entry]]
    }
    return [element MODULE [list FULLNAME /$cell INSTANCE $cell MODTYPE $ip VLNV [dict get $entry vlnv]] $parts]
}
proc parameters_of {cell entry} {
    set values {}
    if {[dict exists $::model::project config $cell]} {
        set values [dict get $::model::project config $cell]
    }
    if {[dict exists $entry values]} {
        dict for {name parameter} [dict get $entry values] {
            dict set values $name [dict get $parameter value]
        }
    }
    dict for {segment place} [dict get $::model::project addresses] {
        lassign $place space base bytes
        if {[string match $cell/* $segment] && $bytes} {
            dict set values C_BASEADDR [format 0x%08X $base]
            dict set values C_HIGHADDR [format 0x%08X [expr {$base + $bytes - 1}]]
        }
    }
    if {[dict exists $entry aperture]} {
        set values [dict merge $values [clocks_of $cell $entry]]
    }
    return [lmap {name value} $values {element PARAMETER [list NAME $name VALUE $value]}]
}
# Clocks of the logic as PYNQ looks for them; only the first one is enabled.
proc clocks_of {cell entry} {
    set actual [actual_mhz $cell $entry]
    set divisor [expr {round([dict get $entry pll] / $actual)}]
    set first 1
    for {set candidate 1} {$candidate <= 63} {incr candidate} {
        if {$divisor % $candidate == 0} {
            set first $candidate
        }
    }
    set values {}
    for {set i 0} {$i < 4} {incr i} {
        if {[string match PSU__* [dict get $entry frequency]]} {
            set name PSU__CRL_APB__PL${i}_REF_CTRL__
            lappend values PSU__FPGA_PL${i}_ENABLE [expr {$i == 0}] ${name}SRCSEL IOPLL ${name}ACT_FREQMHZ $actual
        } else {
            set name PCW_FCLK${i}_PERIPHERAL_
            lappend values PCW_FPGA_FCLK${i}_ENABLE [expr {$i == 0}] ${name}CLKSRC {IO PLL}
        }
        lappend values ${name}DIVISOR0 $first ${name}DIVISOR1 [expr {$divisor / $first}]
    }
    return $values
}
proc ports_of_cell {cell entry} {
    set ports {}
    foreach {pin direction kind} [dict get $entry pins] {
        if {$kind eq "other" || [absent $cell $pin]} {
            continue
        }
        set ends [expr {$direction eq "I" ? [dict get $::model::project nets $cell/$pin] : [sinks_of $cell/$pin]}]
        set connections [lmap end $ends {
            lassign [split $end /] instance port
            element CONNECTION [list INSTANCE $instance PORT $port]
        }]
        set type [dict get {clock CLK reset_low RST reset_high RST interrupt INTERRUPT} $kind]
        lappend ports [element PORT [list NAME $pin DIR $direction SIGIS $type SIGNAME ${cell}_$pin] \
            [list [element CONNECTIONS {} $connections]]]
    }
    return $ports
}
proc sinks_of {source} {
    return [lmap {sink driver} [dict get $::model::project nets] {expr {$driver eq $source ? $sink : [continue]}}]
}
proc ranges_of {cell entry} {
    set master [lmap {name role} [dict get $entry interfaces] {expr {$role eq "master" ? $name : [continue]}}]
    set ranges {}
    dict for {segment place} [dict get $::model::project addresses] {
        lassign $place space base bytes
        if {$space eq "$cell/Data"} {
            lassign [split $segment /] instance interface
            # Segments of Xilinx's IPs write the interface's name in their own way.
            set known [dict keys [dict get [entry_of $instance] interfaces]]
            set interface [lsearch -inline -nocase -exact $known $interface]
            lappend ranges [element MEMRANGE [list INSTANCE $instance MASTERBUSINTERFACE $master MEMTYPE REGISTER \
                SLAVEBUSINTERFACE $interface BASEVALUE [format 0x%08X $base] \
                HIGHVALUE [format 0x%08X [expr {$base + $bytes - 1}]]]]
        }
    }
    return $ranges
}
proc registers_of {entry} {
    if {![dict exists $entry registers]} {
        return ""
    }
    set registers {}
    dict for {name register} [dict get $entry registers] {
        set parts [properties_of [list DESCRIPTION [dict get $register description] \
            ADDRESS_OFFSET [dict get $register address_offset] SIZE [dict get $register size] \
            ACCESS [dict get $register access]]]
        set fields {}
        dict for {key field} [dict get $entry fields] {
            if {[lindex $key 0] eq $name} {
                lappend fields [element FIELD [list NAME [lindex $key 1]] [properties_of [list \
                    BIT_OFFSET [dict get $field bit_offset] BIT_WIDTH [dict get $field bit_width] \
                    ACCESS [dict get $field access]]]]
            }
        }
        if {[llength $fields]} {
            lappend parts [element FIELDS {} $fields]
        }
        lappend registers [element REGISTER [list NAME $name] $parts]
    }
    set block [dict get $entry block]
    return [element ADDRESSBLOCKS {} [list [element ADDRESSBLOCK [list NAME [dict get $block name] \
        INTERFACE [dict get $block map] USAGE [dict get $block usage] RANGE [dict get $block range]] \
        [list [element REGISTERS {} $registers]]]]]
}
proc properties_of {pairs} {
    return [lmap {name value} $pairs {element PROPERTY [list NAME $name VALUE $value]}]
}
