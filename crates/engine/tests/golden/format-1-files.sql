-- The statements that made format-1-files: views of files and external tables, before and after a checkpoint.
CREATE TABLE t (k STRING, more INT)
INSERT INTO t VALUES ('m', 5)
CREATE VIEW rows AS SELECT k, n, ts FROM read_csv('tests/golden/rows/*.csv')
CREATE EXTERNAL TABLE external STORED AS CSV LOCATION 'tests/golden/rows/one.csv'
CREATE VIEW dropped AS SELECT k FROM rows
DROP VIEW dropped
CHECKPOINT
CREATE VIEW joined AS SELECT rows.k, rows.n, t.more FROM rows LAST JOIN t ON rows.k = t.k
CREATE OR REPLACE EXTERNAL TABLE external STORED AS CSV LOCATION 'tests/golden/rows/two.csv' OPTIONS(header = true)
SELECT k FROM rows LIMIT 2 INTO OUTFILE 'tests/golden/gone.csv'
CREATE EXTERNAL TABLE gone STORED AS CSV LOCATION 'tests/golden/gone.csv'
