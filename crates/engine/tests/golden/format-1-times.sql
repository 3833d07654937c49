-- Files with bounds of event times: two columns of them, one with NULL, and an index that was added later.
CREATE TABLE t (k STRING, n INT, ts TIMESTAMP, other BIGINT, INDEX(KEY=k, TS=ts)) OPTIONS(storage_mode='disk')
CREATE TABLE m (k STRING, ts BIGINT, INDEX(KEY=k, TS=ts))
INSERT INTO t VALUES ('a', 1, 1000, 7), ('b', 2, 2000, NULL), ('a', 3, 3000, 8)
INSERT INTO m VALUES ('a', 1000), ('b', 2000)
CHECKPOINT
DEPLOY d AS SELECT k, count(n) OVER w AS c FROM t WINDOW w AS (PARTITION BY n ORDER BY other ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
INSERT INTO t VALUES ('a', 4, 1500, 9000), ('c', 5, 500, NULL)
CHECKPOINT
INSERT INTO t VALUES ('a', 6, 2500, 9001)
INSERT INTO m VALUES ('a', 3000)
