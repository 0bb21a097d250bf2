# All inputs and outputs belong to the processing system, which brings the constraint of its one clock along.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
