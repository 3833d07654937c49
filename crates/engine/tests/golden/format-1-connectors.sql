-- Sources and sinks: in files and in the log; one changed, one stopped, two dropped. {brokers} is a broker while it is made.
CREATE TABLE t (id INT, k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
CREATE STREAM s INTO TABLE counts AS SELECT id, count(id) OVER w AS n FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
CREATE SOURCE into_t INTO TABLE t FROM KAFKA OPTIONS(brokers='{brokers}', topic='in', on_error='skip into bad', start='latest')
CREATE SOURCE dropped INTO TABLE t FROM KAFKA OPTIONS(brokers='{brokers}', topic='in')
CREATE SINK of_stream FROM STREAM s INTO KAFKA OPTIONS(brokers='{brokers}', topic='out', key='id')
INSERT INTO t VALUES (1, 'a', 1000), (2, 'b', 1500), (3, 'a', 3000)
CHECKPOINT
CREATE TABLE u (id INT)
CREATE SINK of_table FROM TABLE u INTO KAFKA OPTIONS(brokers='{brokers}', topic='out', delivery='at_least_once')
ALTER SOURCE into_t SET OPTIONS(on_lost='skip', unknown_columns='ignore')
STOP SINK of_stream
DROP SOURCE dropped
CREATE TABLE gone (id INT)
CREATE SINK of_gone FROM TABLE gone INTO KAFKA OPTIONS(brokers='{brokers}', topic='out')
DROP TABLE gone CASCADE
INSERT INTO t VALUES (4, 'a', 500), (5, 'a', 5000)
