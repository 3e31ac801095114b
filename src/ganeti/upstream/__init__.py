"""The configuration of Ganeti 2.7 to 3.1 as a file (`config.data`), in and out; pure."""
