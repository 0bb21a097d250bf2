"""Cycles between events in different blocks; each is a number of registers in the RTL.

An event's cycle is the one in which its signal is high, so 1 is one register between two signals. The end
of a run of operators is the cycle after the last of them.
"""

from __future__ import annotations

# Sequencer.
FETCH = 2  # first FETCH to EXECUTE, in addition to the descriptor's words, its patterns and their words
OFFER = 1  # EXECUTE to the offer
OFFER_HELD = 4  # offer to the next FETCH at the earliest
NEXT = 2  # last stage takes the layer, to the next FETCH
DMA_STARTED = 3  # EXECUTE of a LOAD or STORE to the next FETCH
QUIET = 5  # end of the last layer in the counters, to EXECUTE of what waits for it
DONE = 1  # EXECUTE of END to the end of the counted cycles

# Stages: offer to the first cycle in which it can be taken; taken to `go`.
PENDING = 1
GO = 2

# Scoreboard.
REPORT = 3  # last word of a layer in the memory, to its end in the counters
STRIP_END = (
    2  # last word of a strip with others behind in the memory, to the next one being taken at the earliest
)
REPORT_HELD = 10  # between two such ends, at least
OUTPUTS_TAKE = 10  # all conditions for a change of layer hold, to `outputs_take`
WALKER_PAST = 1  # walker takes a layer, to the condition that it is past the one before

# Window walker.
WALK = 3  # `go` to the first request's issue
REQUEST = 3  # issue to the request waiting for its turn
REQUEST_ROOM = 1  # from an issue, at the latest, to the second request before it waiting for its turn
CREDIT = 1  # a place in the buffer is reported free, to an issue that uses it
PROGRESS = 2  # a word is in the memory, to an issue that needs it

# A window's turn to come, to the first cycle in which it can leave the buffer.
WINDOW = 14
WINDOW_READ = (
    7  # its turn, to its words being read; a tile from a small part is, a cycle after it is asked for
)

# Word writer.
WRITE = 2  # `go` to the first word
TAKEN = 1  # a window leaves the buffer, to its place being reported free
COMMIT = 3  # last word of a block leaves, to the first operator of the block
RELEASE = 2  # end of a block's operators, to the first word that needs its room
BLOCK_GAP = 2  # between two blocks' first words, at least

# PEs.
LAYER = 3  # end of a layer's operators, to the first operator of the next layer
FREED = 1  # an accumulator is read for the output stage, to an operator that needs it

# Output stage. An entry is taken, its PE asked, its sums arrive, its beats start.
TABLE = 5  # `go` to the first entry
SET_DONE = 7  # end of a set's operators, to an entry that needs it
ASK = 1  # entry taken, to its accumulator being read
START = 2  # accumulator read, to the first beat
RUN_READ = 3  # a run's first operator, to its reading of an accumulator
NEXT_BLOCK = 17  # a window's turn, to the first operator of a block that needs it
COMPLETE = 8  # start of the last beat of a word, to the word being complete, counting the beat
WORD = 2  # a word is complete, to it waiting for the write port
FIRST_ENTRY = 1  # `go` to the first entry being read from the table; the others follow one a cycle
ENTRY_SEEN = 3  # an entry is read, to its being counted in the buffer
ENTRY_ROOM = 2  # entry taken, to another one being read because of it
AHEAD = 16  # entries in the buffer, without the one that is due
TILES_AHEAD = 16  # residual tiles that may be asked for ahead
ASK_TILE = 5  # an entry is read, to its residual tile waiting for its turn
TILE_USED = 6  # end of the beats of a word with a residual tile, to another tile waiting for its turn
TILE = 7  # a tile's turn, to its being read, if no word is written into the bank
TILE_THERE = 6  # a tile is read, to the beats of its word
TERMS = 257  # steps in which the table of residual terms is filled
TERM = 4  # last step, to the table being ready
NEXT_TABLE = 3  # last step, to the first one of the next layer's table

# A word's turn at the write port, to the cycle in which it counts as written.
WRITTEN = 6
UNDER_WAY = 8  # words on their way at a port that gives way
WRITTEN_SECOND = 7  # the same at the port of pool unit and LOAD, if it need not give way

# Pool unit.
POOL_GROUP = 2  # last row step of a group, to its maximum moving on
POOL_COLUMN = 1  # that, to its first column step
POOL_TILE = 2  # last column step, to the word being put out
POOL_WORD = 2  # the word being put out, to it waiting for the write port
POOL_WORD_GAP = 2  # between two words, at least
POOL_ENDED = 2  # last word in the memory, to the next layer being taken
POOL_AVERAGE = 7  # last tile of a channel to the byte being put out, besides the levels of the adder tree

# DMA.
LOAD_REQUEST = 5  # EXECUTE of LOAD to its first address being accepted
BURST_GAP = 2  # between two addresses, at least
BURST_ENDED = 2  # last beat of a burst, to the address of the one that takes its place
READ_BUFFER = 2  # a beat comes, to it leaving the engine's buffer
READ_ROOM = 3  # a beat leaves the buffer, to an address that needs its room
READS_AHEAD = 4  # bursts of an engine that are under way
LOAD_WORD = 2  # last beat of a word, to the word waiting for the write port
LOAD_SEEN = 1  # EXECUTE of LOAD to the last cycle in which the loader may begin a batch before it
LOAD_END = 18  # last word accepted to EXECUTE of what waits for the LOAD
STORE_DEPTH = 8  # tile words that a STORE asks for ahead
STORE_ASKED = 5  # EXECUTE of STORE to its first word waiting for its turn
STORE_TRIP = 16  # a word's first beat goes out, to the one of the word that takes its place
STORE = 23  # EXECUTE of STORE to EXECUTE of what waits for it, without words and the last answer
UNANSWERED = 8  # bursts written whose answers are missing
ANSWERED = 2  # such an answer, to the first beat of the burst that waits for it

# Loader during an inference.
STREAM = 2  # EXECUTE of STREAM to the loader getting ready for its first batch
BATCH_READY = 4  # getting ready, to seeing that there is room
BATCH_LEFT = 2  # all PEs have left what a batch overwrites, to that being seen
SECTION = 4  # header of a section, to its first word's beat
PACKED = 2  # that beat, to the word being written
BATCH_LOADED = 4  # header of the END section, to the batch counting as loaded
BATCH_OVER = 2  # last beat of a batch, to the loader getting ready for the next one
LOADED = 7  # a batch counts as loaded, to the first operator from it
HEADER = 4  # a batch counts as loaded, to its being left by a PE that has no part in it
READ_AHEAD = 12  # PEs leave a batch before the operators of its last words, for one that is there,
READ_LAST = 6  # and otherwise
