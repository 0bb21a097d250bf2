# Shared by all stages. Called as: vivado -mode batch -source STAGE.tcl -tclargs FOLDER JOBS
lassign $argv folder jobs
source $folder/scripts/settings.tcl
set work $folder/vivado

proc setting {name} {
    return [dict get $::settings $name]
}

proc fail {message} {
    puts stderr "ERROR: $message"
    exit 1
}

# The newest version in this Vivado's catalogue: versions differ from one release to the next.
proc newest_ip {name} {
    set found [lsort -dictionary [get_ipdefs -filter "NAME == $name"]]
    if {[llength $found] == 0} {
        fail "IP $name is not in the catalogue of this Vivado"
    }
    return [lindex $found end]
}

proc require_complete {run} {
    if {[get_property PROGRESS [get_runs $run]] ne "100%"} {
        fail "run $run did not finish: see its runme.log in $::work/project"
    }
}
