# Strict stand-in for the Vivado commands that the build scripts use; writes what they build as .hwh.
# tclsh vivado.tcl -version | -mode batch -nojournal -log FILE -source SCRIPT -tclargs ARGUMENTS
# Whatever it does not know is an error. It knows less than Vivado, so what it accepts may still be wrong there.
# STAND_IN_FAULT: old, no_part, integrity, no_board, no_ip, no_hwh, clock, progress, unrouted, slack, hold or no_paths.
namespace eval model {}
set here [file dirname [file normalize [info script]]]
set model::fault [expr {[info exists env(STAND_IN_FAULT)] ? $env(STAND_IN_FAULT) : ""}]

proc need {condition message} {
    if {!$condition} {
        error $message
    }
}

# Splits arguments into options and others: {dictionary list}; what is not allowed is an error.
proc options {command arguments flags {valued {}}} {
    set found {}
    set others {}
    for {set i 0} {$i < [llength $arguments]} {incr i} {
        set word [lindex $arguments $i]
        if {$word in $flags} {
            dict set found $word 1
        } elseif {$word in $valued} {
            incr i
            need [expr {$i < [llength $arguments]}] "$command: $word without a value"
            dict set found $word [lindex $arguments $i]
        } elseif {[regexp {^-[a-z]} $word]} {
            error "$command: unknown option $word"
        } else {
            lappend others $word
        }
    }
    return [list $found $others]
}

proc require_options {command given names} {
    foreach name $names {
        need [dict exists $given $name] "$command without $name"
    }
}

proc one {command others {count 1}} {
    need [expr {[llength $others] == $count}] "$command takes $count arguments, not [llength $others]: $others"
    return [lindex $others 0]
}

proc write_text {path text} {
    set file [open $path w]
    puts $file $text
    close $file
}

# An object is {kind name ...}; of commands that expect one kind, another or none is an error.
proc expect {command object kinds} {
    need [expr {[lindex $object 0] in $kinds}] "$command: '$object' is not a [join $kinds { or }]"
    return [lindex $object 1]
}

foreach part {catalogue project packager properties design hwh runs} {
    source $here/$part.tcl
}
proc unknown {args} {
    error "unknown command [lindex $args 0]"
}

if {[lindex $argv 0] eq "-version"} {
    puts "vivado v[version -short] (stand-in)"
    exit 0
}
set split [lsearch -exact $argv -tclargs]
lassign [options vivado [lrange $argv 0 $split-1] {-nojournal -notrace} {-mode -log -source}] given _
set argv [lrange $argv $split+1 end]
set script [dict get $given -source]
if {[catch {
    uplevel #0 [list source $script]
    need [expr {![dict exists $model::project name]}] "the script leaves its project open"
} message]} {
    puts stderr "ERROR: $message"
    puts stderr [join [lrange [split $errorInfo \n] 0 12] \n]
    exit 1
}
