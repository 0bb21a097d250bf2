# Stage `impl`: placement, routing, reports, timing gate, bitstream.
source [file dirname [info script]]/common.tcl
open_project $work/project/project.xpr
reset_run impl_1
set_property STEPS.POST_ROUTE_PHYS_OPT_DESIGN.IS_ENABLED true [get_runs impl_1]
launch_runs impl_1 -to_step write_bitstream -jobs $jobs
wait_on_run impl_1
require_complete impl_1
open_run impl_1
report_utilization -hierarchical -file $folder/reports/utilization.rpt
report_timing_summary -file $folder/reports/timing.rpt
report_power -file $folder/reports/power.rpt
report_drc -file $folder/reports/drc.rpt

set setup [get_property SLACK [get_timing_paths -max_paths 1 -nworst 1 -setup]]
set hold [get_property SLACK [get_timing_paths -max_paths 1 -nworst 1 -hold]]
set file [open $folder/reports/slack.txt w]
puts $file "$setup $hold"
close $file
foreach {kind slack} [list setup $setup hold $hold] {
    if {$slack eq ""} {
        fail "no $kind path is constrained: the clock of the processing system has no constraint"
    }
    if {$slack < 0} {
        fail "timing not met at [setting clock_mhz] MHz: $kind slack $slack ns, see reports/timing.rpt; try a lower --clock-mhz"
    }
}
file copy -force $work/project/project.runs/impl_1/espalier_wrapper.bit $work/espalier.bit
write_hw_platform -fixed -include_bit -force $work/espalier.xsa
close_project
