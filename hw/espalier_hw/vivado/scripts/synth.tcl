# Stage `synth`: synthesis.
source [file dirname [info script]]/common.tcl
open_project $work/project/project.xpr
reset_run synth_1
launch_runs synth_1 -jobs $jobs
wait_on_run synth_1
require_complete synth_1
open_run synth_1
report_utilization -hierarchical -file $folder/reports/synth_utilization.rpt
close_project
