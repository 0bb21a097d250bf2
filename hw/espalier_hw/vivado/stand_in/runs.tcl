# Generated files, runs and reports; runs need their steps in order.
proc generate_target {what file} {
    expect generate_target $file file
    need [expr {$what eq "all" && [done saved] && [done valid]}] "generate_target before the design is valid and saved"
    set folder [dict get $::model::project folder]/[dict get $::model::project name].gen/sources_1/bd/[dict get $::model::project bd]/hw_handoff
    file mkdir $folder
    if {$::model::fault ne "no_hwh"} {
        write_hwh $folder/[dict get $::model::project bd].hwh
    }
    mark generated
}
proc make_wrapper {args} {
    lassign [options make_wrapper $args {-top} {-files}] given others
    require_options make_wrapper $given {-files -top}
    expect make_wrapper [dict get $given -files] file
    need [done generated] "make_wrapper before generate_target"
    set path [dict get $::model::project folder]/[dict get $::model::project bd]_wrapper.v
    write_text $path "// written by the stand-in for Vivado"
    dict set ::model::project wrapper $path
    return $path
}
proc get_runs {name} {
    need [expr {$name in {synth_1 impl_1}}] "no run $name"
    return [list run $name]
}
proc reset_run {name} {
    get_runs $name
    dict unset ::model::project done waited_$name
}
proc launch_runs {args} {
    project_is_open launch_runs
    lassign [options launch_runs $args {} {-jobs -to_step}] given others
    set run [lindex [get_runs [one launch_runs $others]] 1]
    require_options launch_runs $given -jobs
    need [string is integer -strict [dict get $given -jobs]] "launch_runs: jobs [dict get $given -jobs]"
    need [expr {[done constraints] && [done order]}] "launch_runs before constraints and compile order"
    need [expr {[dict get $::model::project top] eq "[dict get $::model::project bd]_wrapper"}] "the wrapper is not the top"
    need [expr {[dict get $::model::project wrapper] in [dict get $::model::project sources]}] "the wrapper is no source"
    if {$run eq "impl_1"} {
        need [done waited_synth_1] "impl_1 before synth_1"
        need [expr {[dict exists $given -to_step] && [dict get $given -to_step] eq "write_bitstream"}] "impl_1: wrong last step"
        need [done STEPS.POST_ROUTE_PHYS_OPT_DESIGN.IS_ENABLED] "impl_1 without its strategy"
    }
    dict unset ::model::project done waited_$run
    mark launched_$run
}
proc wait_on_run {name} {
    need [done launched_$name] "wait_on_run: $name was not launched"
    dict unset ::model::project done launched_$name
    mark waited_$name
    if {$name eq "impl_1"} {
        set folder [dict get $::model::project folder]/[dict get $::model::project name].runs/impl_1
        file mkdir $folder
        write_text $folder/[dict get $::model::project bd]_wrapper.bit "no bitstream: written by the stand-in for Vivado"
    }
}
proc open_run {name} {
    need [done waited_$name] "open_run: $name has not finished"
    dict set ::model::project opened $name
}
proc report {command arguments flags} {
    need [dict exists $::model::project opened] "$command without an open run"
    lassign [options $command $arguments $flags {-file}] given others
    require_options $command $given -file
    need [expr {$others eq ""}] "$command: unknown arguments $others"
    write_text [dict get $given -file] "$command: written by the stand-in for Vivado"
}
proc report_utilization {args} {
    report report_utilization $args -hierarchical
}
foreach name {report_timing_summary report_power report_drc} {
    proc $name {args} "report $name \$args {}"
}
proc get_timing_paths {args} {
    lassign [options get_timing_paths $args {-setup -hold} {-max_paths -nworst}] given others
    need [expr {[dict get $::model::project opened] eq "impl_1" && $others eq ""}] "get_timing_paths: no routed design"
    need [expr {[dict exists $given -setup] != [dict exists $given -hold]}] "get_timing_paths: -setup or -hold"
    if {$::model::fault eq "no_paths"} {
        return ""
    }
    return [list path [expr {[dict exists $given -setup] ? "slack" : "hold"}]]
}
proc write_hw_platform {args} {
    lassign [options write_hw_platform $args {-fixed -include_bit -force}] given others
    require_options write_hw_platform $given {-fixed -include_bit -force}
    need [done waited_impl_1] "write_hw_platform before impl_1"
    write_text [one write_hw_platform $others] "no platform: written by the stand-in for Vivado"
}
