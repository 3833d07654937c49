-- The statements that made format-1-users: users, roles, grants and tokens, before and behind a checkpoint.
-- The tokens that they printed are in format-1-users.tokens.
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
INSERT INTO t VALUES ('a', 1, 1000), ('b', 2, 2000)
CREATE DATABASE shop
CREATE TABLE shop.orders (k STRING, price DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
INSERT INTO shop.orders VALUES ('a', 1.5, 1000)
DEPLOY shop.price AS SELECT k, price FROM shop.orders
CREATE USER ann OPTIONS(password='first')
CREATE USER bob
CREATE USER gone OPTIONS(password='gone')
CREATE ROLE readers
CREATE ROLE writers
GRANT SELECT ON TABLE default.t TO readers
GRANT INSERT ON DATABASE shop TO writers
GRANT readers TO ann
GRANT readers TO bob
CREATE TOKEN early FOR ann OPTIONS(expires_in='30d')
CREATE TOKEN dropped FOR ann
CREATE TOKEN forever FOR bob OPTIONS(expires_in='never')
CHECKPOINT
ALTER USER ann SET OPTIONS(password='second')
GRANT SELECT ON *.* TO ann WITH GRANT OPTION
GRANT EXECUTE ON DEPLOYMENT shop.price TO bob
GRANT INSERT, DELETE ON TABLE default.t TO bob
REVOKE DELETE ON TABLE default.t FROM bob
REVOKE readers FROM bob
GRANT writers TO bob
CREATE TOKEN late FOR bob
DROP TOKEN dropped FOR ann
DROP USER gone
CREATE USER gone
CREATE ROLE temporary
GRANT temporary TO ann
DROP ROLE temporary
INSERT INTO t VALUES ('c', 3, 3000)
