-- Disk tables: files of two checkpoints, rows that are only in the log, and moves between memory and disk.
CREATE TABLE t (k STRING, n INT, v DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts)) OPTIONS(storage_mode='disk')
CREATE TABLE latest (k STRING, n INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=2, TTL_TYPE=latest)) OPTIONS(storage_mode='ssd')
CREATE TABLE moved (k STRING, n INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
DEPLOY d AS SELECT k, sum(v) OVER w AS s, count(n) OVER w AS c FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
INSERT INTO t VALUES ('a', 1, 0.1, 1000), ('b', 2, 0.2, 2000), ('a', 3, 0.3, 3000)
INSERT INTO latest VALUES ('a', 1, 1000), ('a', 2, 2000), ('a', 3, 3000), ('b', 4, 1000)
INSERT INTO moved VALUES ('a', 1, 1000), ('b', 2, 2000)
CHECKPOINT
INSERT INTO t VALUES ('a', 4, 1e300, 1500), ('c', 5, -0.0, 500)
INSERT INTO latest VALUES ('b', 5, 500), ('b', 6, 2000)
CREATE INDEX by_n ON t (n) OPTIONS (ts=ts)
ALTER TABLE moved SET OPTIONS(storage_mode='disk')
CHECKPOINT
DELETE FROM t WHERE k = 'b'
INSERT INTO t VALUES ('a', 6, 0.6, 2500)
INSERT INTO moved VALUES ('a', 3, 3000)
ALTER TABLE moved SET OPTIONS(storage_mode='memory')
