-- What Superset asks of a PostgreSQL server beside SQLAlchemy's inspector (test_postgres.py has that), in its
-- forms: databases, its own process, the cancelling of it. Written after its source at commit
-- 007e4f5f; run by test_introspection.py.

-- databases
SELECT d.datname FROM pg_database d WHERE d.datistemplate = false
-- = datname
-- = default

-- foreign tables
SELECT pg_catalog.pg_class.relname FROM pg_catalog.pg_class
JOIN pg_catalog.pg_namespace ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace
WHERE pg_catalog.pg_class.relkind = ANY (ARRAY['f']) AND pg_catalog.pg_namespace.nspname = 'public'
-- = relname

-- processes to cancel
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.pid = '123'
-- = pg_terminate_backend

-- views, and materialized ones
SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm') AND n.nspname NOT LIKE 'pg\_%'
-- = relname
