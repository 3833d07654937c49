-- The statements that made format-1-jobs: jobs whose beginning is in the log, before and behind a checkpoint.
CREATE TABLE t (k STRING, n INT, v DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
CREATE TABLE u (k STRING, n INT, v DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
LOAD DATA INFILE 'tests/golden/rows/one.csv' INTO TABLE t
LOAD DATA INFILE 'tests/golden/rows/two.csv' INTO TABLE u
offline LOAD DATA INFILE 'tests/golden/rows/two.csv' INTO TABLE t
CHECKPOINT
LOAD DATA INFILE 'tests/golden/rows' INTO TABLE u
offline SELECT * FROM t
DELETE JOB 2
