-- The statements that made the directory format-1, one a line. CHECKPOINT stands where one was written;
-- the last lines made the log behind it. Lines that begin with `offline` were run in offline mode.
CREATE TABLE t (k STRING, n INT, v DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=3, TTL_TYPE=latest)) OPTIONS(DURABILITY='os')
INSERT INTO t VALUES ('a', 1, 1.5, 1000), ('a', 2, 2.5, 2000), ('b', 3, NULL, 3000), ('a', 2, 0.1, 2500)
INSERT INTO t VALUES ('c', 4, -0.0, 1000), ('c', 5, 1e300, 2000), (NULL, 6, 1e-300, 3000), ('b', 3, 7.5, 3000)
CREATE TABLE types (a BOOL, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g STRING, h TIMESTAMP, i DATE, INDEX(KEY=c, TS=h))
INSERT INTO types VALUES (true, -7, 8, 9223372036854775807, 0.1, 0.1, 'text', 1700000000000, '2024-02-29'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL)
DEPLOY first AS SELECT k, count(n) OVER w AS c FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
CHECKPOINT
INSERT INTO t VALUES ('d', 7, 3.5, 1000)
CREATE PROCEDURE q (k STRING, n INT, v DOUBLE, ts TIMESTAMP) BEGIN SELECT k FROM t; END
CREATE DATABASE before
offline LOAD DATA INFILE 'tests/golden/rows/two.csv' INTO TABLE t
CHECKPOINT
CREATE DATABASE other
CREATE TABLE other.u (k STRING NOT NULL, v INT DEFAULT 7)
INSERT INTO other.u (k) VALUES ('x')
DEPLOY d AS SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)
DEPLOY e AS SELECT n, count(k) OVER w AS c FROM t WINDOW w AS (PARTITION BY n ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
CREATE PROCEDURE p (k STRING, n INT, v DOUBLE, ts TIMESTAMP) BEGIN SELECT k, v FROM t; END
LOAD DATA INFILE 'tests/golden/rows' INTO TABLE t
DELETE FROM t WHERE k = 'b'
CREATE INDEX i ON t (n) OPTIONS (ts=ts, ttl=0m, ttl_type=absolute)
CREATE USER alice OPTIONS(password='secret')
GRANT SELECT ON *.* TO alice
SET GLOBAL statement_timeout = '30s'
CREATE TABLE gone (k STRING)
DROP TABLE gone
TRUNCATE TABLE other.u
INSERT INTO other.u VALUES ('z', 1)
DEPLOY gone AS SELECT k FROM t
DROP DEPLOYMENT gone
DROP PROCEDURE q
CREATE TABLE linked (k STRING, n INT, v DOUBLE, ts TIMESTAMP)
offline LOAD DATA INFILE 'tests/golden/rows/one.csv' INTO TABLE linked OPTIONS(deep_copy=false)
offline LOAD DATA INFILE 'tests/golden/rows/one.csv' INTO TABLE t OPTIONS(mode='overwrite')
ALTER TABLE types ADD offline_path 'nowhere.parquet'
DELETE JOB 1
DROP DATABASE before
