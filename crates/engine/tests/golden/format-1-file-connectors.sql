-- Sources and sinks of files, in files and in the log: one knows the files that were there, one was changed, one stopped, two dropped. They do not run while it is made.
CREATE TABLE t (id INT, k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
CREATE SOURCE into_t INTO TABLE t FROM FILES OPTIONS(path='tests/golden/format-1-a*.txt', format='csv', start='latest', on_error='skip into bad', settle_after=2s)
CREATE SOURCE of_known INTO TABLE t FROM FILES OPTIONS(path='tests/golden/format-1-users.*', format='json', start='latest')
CREATE SOURCE dropped INTO TABLE t FROM FILES OPTIONS(path='tests/golden', format='json')
CREATE SINK of_t FROM TABLE t INTO FILES OPTIONS(path='tests/golden', format='csv', header=false, rows_per_file=10, roll_after='5m', compression='gzip')
INSERT INTO t VALUES (1, 'a', 1000), (2, 'b', 1500), (3, 'a', 3000)
CHECKPOINT
CREATE TABLE u (id INT)
CREATE SINK of_u FROM TABLE u INTO FILES OPTIONS(path='tests', start='latest')
ALTER SOURCE into_t SET OPTIONS(on_change='skip', settle_after='0s')
STOP SINK of_t
DROP SOURCE dropped
CREATE TABLE gone (id INT)
CREATE SINK of_gone FROM TABLE gone INTO FILES OPTIONS(path='tests')
DROP TABLE gone CASCADE
INSERT INTO t VALUES (4, 'a', 500), (5, 'a', 5000)
