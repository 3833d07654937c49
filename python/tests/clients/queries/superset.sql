-- Charts of Superset over a table, in the forms of SQLAlchemy and its PostgreSQL time grains. Run by
-- test_tool_queries.py.

-- samples
SELECT id, product, amount, sold_at
FROM public.sales
LIMIT 2
OFFSET 0

-- time series by day
SELECT DATE_TRUNC('day', sold_at) AS __timestamp, sum(amount) AS "SUM(amount)"
FROM public.sales
WHERE sold_at >= TO_TIMESTAMP(1704067200.000) AND sold_at < TO_TIMESTAMP(1710000000)
GROUP BY DATE_TRUNC('day', sold_at)
ORDER BY "SUM(amount)" DESC
LIMIT 50000

-- time series of the greatest groups
SELECT DATE_TRUNC('month', sold_at) AS __timestamp, sales.product AS product, sum(amount) AS "SUM(amount)"
FROM public.sales JOIN (SELECT product AS product__, sum(amount) AS mme_inner__
FROM public.sales GROUP BY product ORDER BY mme_inner__ DESC NULLS LAST
LIMIT 2) AS anon_1 ON sales.product = product__
GROUP BY DATE_TRUNC('month', sold_at), sales.product
ORDER BY "SUM(amount)" DESC NULLS LAST, product
LIMIT 10000

-- virtual data set
SELECT product AS product, count(*) AS count
FROM (SELECT * FROM public.sales WHERE sold_at >= '2024-01-01'::timestamp
) AS virtual_table
GROUP BY product ORDER BY count DESC, product
LIMIT 100

-- big number with a filter
SELECT count(DISTINCT product) AS "COUNT_DISTINCT(product)"
FROM public.sales
WHERE sold_at >= TO_TIMESTAMP(1704067200) AND amount > 1.5 AND product IN ('pen', 'book')

-- values of a filter
SELECT DISTINCT product AS product
FROM public.sales ORDER BY product ASC
LIMIT 1000

-- time grain of 5 minutes
SELECT to_timestamp(floor(extract(epoch from sold_at) / 300) * 300) AS __timestamp, count(*) AS count
FROM public.sales WHERE sold_at IS NOT NULL GROUP BY to_timestamp(floor(extract(epoch from sold_at) / 300) * 300)
ORDER BY __timestamp LIMIT 2

-- percentage of a number
SELECT product AS product, round((sum(amount) / 70.0)::numeric, 2) AS share
FROM public.sales GROUP BY product ORDER BY share DESC NULLS LAST, product
