-- How late will this flight arrive? Features known at its scheduled departure.
--
-- `flights`, `departures` and `arrivals` have the same columns, so that a window over `flights` can
-- include the other two tables: UNION adds their rows, and INSTANCE_NOT_IN_WINDOW excludes the other
-- rows of `flights`. An unknown delay is NULL, and aggregates skip NULL.

SELECT
  flights.flight_id AS flight_id,

  -- Schedule: calendar, route, carrier.
  hour(flights.ts) AS hour_of_day,
  minute(flights.ts) AS minute_of_hour,
  dayofweek(flights.ts) AS day_of_week,
  flights.carrier AS carrier,
  flights.origin AS origin,
  flights.dest AS dest,
  flights.distance AS distance,
  flights.scheduled_minutes AS scheduled_minutes,

  -- Current state of the origin airport: its departures, arrivals and timetable.
  avg(dep_delay) OVER airport_1h AS airport_1h_dep_delay_avg,
  max(dep_delay) OVER airport_1h AS airport_1h_dep_delay_max,
  count(dep_delay) OVER airport_1h AS airport_1h_departures,
  count(arr_delay) OVER airport_1h AS airport_1h_arrivals,
  avg_where(dep_delay, dep_delay > 15) OVER airport_1h AS airport_1h_late_avg,
  avg(dep_delay) OVER airport_6h AS airport_6h_dep_delay_avg,
  avg(arr_delay) OVER airport_6h AS airport_6h_arr_delay_avg,
  count_where(dep_delay, dep_delay > 60) OVER airport_6h AS airport_6h_very_late,
  count(flight_id) OVER timetable_1h AS airport_1h_scheduled,
  distinct_count(dest) OVER timetable_1h AS airport_1h_destinations,

  -- Destination airport: flights on their way to it, and flights that have arrived.
  count(dep_delay) OVER destination_6h AS destination_6h_departures,
  avg(dep_delay) OVER destination_6h AS destination_6h_dep_delay_avg,
  avg(arr_delay) OVER destination_6h AS destination_6h_arr_delay_avg,
  max(arr_delay) OVER destination_6h AS destination_6h_arr_delay_max,

  -- Carrier: at this airport in the last hours, at all airports in the last day.
  avg(dep_delay) OVER carrier_1h AS carrier_1h_dep_delay_avg,
  avg(dep_delay) OVER carrier_6h AS carrier_6h_dep_delay_avg,
  count_where(dep_delay, dep_delay > 15) OVER carrier_6h AS carrier_6h_late,
  avg(arr_delay) OVER carrier_1d AS carrier_1d_arr_delay_avg,
  sum(air_minutes) OVER carrier_1d AS carrier_1d_air_minutes,
  distinct_count(flights.tailnum) OVER carrier_1d AS carrier_1d_planes,

  -- Route in the last week.
  avg(arr_delay) OVER route_7d AS route_7d_arr_delay_avg,
  min(arr_delay) OVER route_7d AS route_7d_arr_delay_min,
  max(arr_delay) OVER route_7d AS route_7d_arr_delay_max,
  avg(air_minutes) OVER route_7d AS route_7d_air_minutes_avg,
  count_where(arr_delay, arr_delay > 15) OVER route_7d AS route_7d_late,
  avg(air_minutes) OVER route_1d AS route_1d_air_minutes_avg,
  avg(arr_delay) OVER route_1d AS route_1d_arr_delay_avg,

  -- Plane: its recent flights and delays, and its model.
  lag(arr_delay, 1) OVER plane_last_5 AS plane_last_arr_delay,
  avg(arr_delay) OVER plane_last_5 AS plane_last_5_arr_delay_avg,
  max(arr_delay) OVER plane_last_5 AS plane_last_5_arr_delay_max,
  max(dep_delay) OVER plane_1d AS plane_1d_dep_delay_max,
  count(dep_delay) OVER plane_1d AS plane_1d_departures,
  sum(air_minutes) OVER plane_7d AS plane_7d_air_minutes,
  avg(arr_delay) OVER plane_7d AS plane_7d_arr_delay_avg,
  distinct_count(dest) OVER plane_7d AS plane_7d_destinations,
  year(flights.ts) - planes.year AS plane_age,
  planes.seats AS plane_seats,
  planes.manufacturer AS plane_manufacturer,

  -- Weather: the newest reading at the airport at or before the scheduled departure.
  weather.temp AS temp,
  weather.humid AS humid,
  weather.wind_speed AS wind_speed,
  ifnull(weather.wind_gust, 0.0) AS wind_gust,
  weather.precip AS precip,
  weather.pressure AS pressure,
  weather.visib AS visib,
  CASE
    WHEN weather.visib < 3.0 OR weather.wind_speed > 25.0 OR weather.precip > 0.1 THEN 'bad'
    WHEN weather.visib < 10.0 OR weather.wind_speed > 15.0 OR weather.precip > 0.0 THEN 'fair'
    ELSE 'good'
  END AS flying_weather

FROM flights
LAST JOIN weather ORDER BY weather.ts
  ON flights.origin = weather.origin AND weather.ts <= flights.ts
LAST JOIN planes ON flights.tailnum = planes.tailnum

WINDOW
  airport_1h AS (UNION departures, arrivals PARTITION BY flights.origin ORDER BY flights.ts
    ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  airport_6h AS (UNION departures, arrivals PARTITION BY flights.origin ORDER BY flights.ts
    ROWS_RANGE BETWEEN 6h PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  timetable_1h AS (PARTITION BY flights.origin ORDER BY flights.ts
    ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW),
  destination_6h AS (UNION departures, arrivals PARTITION BY flights.dest ORDER BY flights.ts
    ROWS_RANGE BETWEEN 6h PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  carrier_1h AS (UNION departures PARTITION BY flights.carrier, flights.origin ORDER BY flights.ts
    ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  carrier_6h AS (UNION departures PARTITION BY flights.carrier, flights.origin ORDER BY flights.ts
    ROWS_RANGE BETWEEN 6h PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  carrier_1d AS (UNION arrivals PARTITION BY flights.carrier ORDER BY flights.ts
    ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  route_1d AS (UNION arrivals PARTITION BY flights.origin, flights.dest ORDER BY flights.ts
    ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  route_7d AS (UNION arrivals PARTITION BY flights.origin, flights.dest ORDER BY flights.ts
    ROWS_RANGE BETWEEN 7d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  plane_1d AS (UNION departures PARTITION BY flights.tailnum ORDER BY flights.ts
    ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  plane_7d AS (UNION arrivals PARTITION BY flights.tailnum ORDER BY flights.ts
    ROWS_RANGE BETWEEN 7d PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW),
  plane_last_5 AS (UNION arrivals PARTITION BY flights.tailnum ORDER BY flights.ts
    ROWS BETWEEN 5 PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW)
