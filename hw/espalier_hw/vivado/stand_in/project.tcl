# Projects, files and look-ups. An open project is one dictionary, kept in its .xpr while closed.
set model::project {}

proc project_is_open {command} {
    need [dict exists $::model::project name] "$command: no open project"
}
proc version {args} {
    need [expr {$args eq "-short"}] "version: unknown arguments $args"
    return [expr {$::model::fault eq "old" ? "2021.2" : "2024.1"}]
}
proc get_parts {args} {
    lassign [options get_parts $args {-quiet}] _ others
    return [expr {$::model::fault eq "no_part" ? "" : [lsearch -all -inline -exact $::model::parts [one get_parts $others]]}]
}
proc get_board_parts {args} {
    lassign [options get_board_parts $args {-quiet}] _ others
    set pattern [one get_board_parts $others]
    return [expr {$::model::fault eq "no_board" ? "" : [lsearch -all -inline -glob $::model::board_files $pattern]}]
}
proc create_project {args} {
    need [expr {![dict exists $::model::project name]}] "create_project: a project is open"
    lassign [options create_project $args {-force} {-part}] given others
    one create_project $others 2
    lassign $others name folder
    require_options create_project $given -part
    need [expr {[dict get $given -part] in $::model::parts}] "create_project: unknown part [dict get $given -part]"
    need [expr {[dict exists $given -force] || ![file exists $folder/$name.xpr]}] "project $name exists already"
    file delete -force $folder
    file mkdir $folder
    set ::model::project [dict create name $name folder $folder part [dict get $given -part] sources {} constraints {} \
        cells {} config {} nets {} links {} addresses {} done {}]
}
proc open_project {path} {
    need [expr {![dict exists $::model::project name]}] "open_project: a project is open"
    set file [open $path]
    set ::model::project [read $file]
    close $file
    dict unset ::model::project opened
}
proc close_project {} {
    project_is_open close_project
    set file [open [dict get $::model::project folder]/[dict get $::model::project name].xpr w]
    puts -nonewline $file $::model::project
    close $file
    set ::model::project {}
}
proc current_project {} {
    project_is_open current_project
    return {project current}
}
proc current_fileset {} {
    project_is_open current_fileset
    return {fileset sources_1}
}
proc mark {what} {
    dict set ::model::project done $what 1
}
proc done {what} {
    return [dict exists $::model::project done $what]
}
proc add_files {args} {
    project_is_open add_files
    lassign [options add_files $args {-norecurse} {-fileset}] given others
    set files [one add_files $others]
    set kind sources
    if {[dict exists $given -fileset]} {
        need [expr {[dict get $given -fileset] eq "constrs_1"}] "add_files: no fileset [dict get $given -fileset]"
        set kind constraints
        check_constraints [lindex $files 0]
    }
    foreach file $files {
        need [file exists $file] "add_files: no file $file"
        need [expr {[file extension $file] eq [dict get {sources .v constraints .xdc} $kind]}] "add_files: $file is no $kind"
        dict lappend ::model::project $kind $file
    }
    dict unset ::model::project done order
}
# Constraints may set properties of the design only.
proc check_constraints {path} {
    set file [open $path]
    foreach line [split [read $file] \n] {
        set known [regexp {^set_property BITSTREAM\.GENERAL\.COMPRESS (TRUE|FALSE) \[current_design\]$} $line]
        need [expr {$known || [regexp {^\s*(#.*)?$} $line]}] "$path: unknown constraint $line"
        if {$known} {
            mark constraints
        }
    }
    close $file
}
proc update_compile_order {args} {
    lassign [options update_compile_order $args {} {-fileset}] given others
    need [expr {$given eq {-fileset sources_1} && $others eq ""}] "update_compile_order: unknown arguments $args"
    need [dict exists $::model::project top] "update_compile_order before the top is set"
    mark order
}
proc update_ip_catalog {args} {
    need [expr {$args eq "-rebuild"}] "update_ip_catalog: unknown arguments $args"
    need [dict exists $::model::project ip_repo_paths] "update_ip_catalog before ip_repo_paths is set"
    set found [glob -nocomplain [dict get $::model::project ip_repo_paths]/*/component.xml]
    need [llength $found] "update_ip_catalog: no packaged IP in [dict get $::model::project ip_repo_paths]"
    dict set ::model::project repository {}
    foreach path $found {
        set file [open $path]
        set entry [read $file]
        close $file
        dict set ::model::project repository [dict get $entry name] $entry
    }
}
# All that can be made into cells: Xilinx's IPs and packaged ones.
proc ips {} {
    if {[dict exists $::model::project repository]} {
        return [dict merge $::model::catalogue [dict get $::model::project repository]]
    }
    return $::model::catalogue
}
proc get_ipdefs {args} {
    project_is_open get_ipdefs
    lassign [options get_ipdefs $args {} {-filter}] given others
    need [regexp {^NAME == (\w+)$} [dict get $given -filter] -> name] "get_ipdefs: unknown filter [dict get $given -filter]"
    need [dict exists [ips] $name] "get_ipdefs: no IP $name"
    return [expr {$::model::fault eq "no_ip" ? "" : [list [dict get [ips] $name vlnv]]}]
}
proc get_files {name} {
    need [expr {$name eq "[dict get $::model::project bd].bd"}] "get_files: no file $name"
    return [list file $name]
}
