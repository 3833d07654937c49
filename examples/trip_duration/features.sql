-- How long will this taxi trip take? What is known when it begins.
--
-- `trips` and `finished` have the same columns. A trip is in `trips` from the moment in which it
-- begins, with a duration that is NULL, and in `finished` from the moment in which it ends.

WITH
  t AS (
    SELECT *, earth_distance(pickup_lat, pickup_lon, dropoff_lat, dropoff_lon) AS km FROM trips
  ),
  done AS (
    SELECT *, earth_distance(pickup_lat, pickup_lon, dropoff_lat, dropoff_lon) AS km FROM finished
  )

SELECT
  t.trip_id AS trip_id,

  -- The trip itself.
  t.km AS km,
  hour(t.ts) AS hour_of_day,
  dayofweek(t.ts) AS day_of_week,
  t.vendor AS vendor,
  t.passengers AS passengers,
  t.pickup_lon AS pickup_lon,
  t.pickup_lat AS pickup_lat,
  t.dropoff_lon AS dropoff_lon,
  t.dropoff_lat AS dropoff_lat,

  -- The traffic of the last hours, everywhere: minutes per kilometre of trips that have ended.
  count(t.trip_id) OVER city_2h AS city_2h_trips,
  sum(t.minutes) OVER city_2h / sum(t.km) OVER city_2h AS city_2h_pace,
  median(t.minutes / t.km) OVER city_2h AS city_2h_pace_median,

  -- The same hour of the day, in two weeks.
  sum(t.minutes) OVER hour_14d / sum(t.km) OVER hour_14d AS hour_14d_pace,
  median(t.minutes / t.km) OVER hour_14d AS hour_14d_pace_median,

  -- Trips that began in the same cell, trips that ended there, and trips with the same two cells.
  count(t.trip_id) OVER origin_14d AS origin_14d_trips,
  median(t.minutes / t.km) OVER origin_14d AS origin_14d_pace_median,
  median(t.minutes / t.km) OVER target_14d AS target_14d_pace_median,
  count(t.trip_id) OVER route_30d AS route_30d_trips,
  median(t.minutes) OVER route_30d AS route_30d_minutes_median,
  median(t.minutes / t.km) OVER route_30d AS route_30d_pace_median

FROM t

WINDOW
  city_2h AS (UNION done ORDER BY t.ts
    ROWS_RANGE BETWEEN 2h PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  hour_14d AS (UNION done PARTITION BY t.clock_hour ORDER BY t.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  origin_14d AS (UNION done PARTITION BY t.origin ORDER BY t.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  target_14d AS (UNION done PARTITION BY t.target ORDER BY t.ts
    ROWS_RANGE BETWEEN 14d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW),
  route_30d AS (UNION done PARTITION BY t.origin, t.target ORDER BY t.ts
    ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW EXCLUDE CURRENT_ROW)
