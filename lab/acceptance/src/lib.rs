//! Tests of the program `stockade` from outside: they start, call, stop and kill its processes.
//! They are not part of the program's crate because they need the servers of `testbed`, and the
//! program depends on nothing of the lab.
