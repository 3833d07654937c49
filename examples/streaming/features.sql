SELECT id, user, ts,
       sum(price) OVER w AS spent,
       count(price) OVER w AS orders,
       avg(price) OVER w AS price_avg,
       max(price) OVER w AS price_max,
       distinct_count(item) OVER w AS items
FROM (SELECT id, user, ts, CAST(NULL AS STRING) AS item, CAST(NULL AS DOUBLE) AS price FROM actions) AS a
WINDOW w AS (UNION orders PARTITION BY user ORDER BY ts
  ROWS_RANGE BETWEEN 1m PRECEDING AND 1m FOLLOWING INSTANCE_NOT_IN_WINDOW)
