-- The statements that made format-1-views: views and changed columns, before and after a checkpoint.
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
INSERT INTO t VALUES ('a', 1, 1000), ('b', 2, 1500), ('a', 3, 2000)
ALTER TABLE t ADD COLUMN n BIGINT NOT NULL DEFAULT 7, DROP COLUMN v
CREATE TABLE replaced (k STRING)
INSERT INTO replaced VALUES ('old')
CREATE OR REPLACE TABLE replaced AS SELECT k, n FROM t
CREATE VIEW large AS SELECT k, ts, n FROM t WHERE n > 1
CREATE VIEW gone AS SELECT k FROM t
DROP VIEW gone
CREATE ROLE readers
CREATE USER alice OPTIONS(password='secret')
GRANT readers TO alice
CHECKPOINT
CREATE VIEW larger AS SELECT k, ts, n FROM large WHERE n > 2
CREATE OR REPLACE VIEW larger AS SELECT k, ts, n FROM large WHERE n > 3
CREATE VIEW small AS SELECT k FROM t
DROP VIEW small
CREATE DATABASE other
USE other
CREATE VIEW small AS SELECT k FROM default.larger
USE default
DEPLOY d AS SELECT k, sum(n) OVER w AS total FROM larger WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)
INSERT INTO t VALUES ('b', 2500, 9)
CREATE VIEW small AS SELECT k FROM replaced
GRANT SELECT ON TABLE default.larger TO readers
