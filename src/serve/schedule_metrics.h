/* Metrics of a controller for Prometheus and other scrapers. */
#ifndef ERG_SERVE_SCHEDULE_METRICS_H
#define ERG_SERVE_SCHEDULE_METRICS_H

#include "base/text.h"

#include <jansson.h>

/*
 * Writes the OpenMetrics families of a status, without the end of the text. Values that the status
 * lacks are left out; NULL: there is no status yet.
 */
void erg_schedule_metrics(struct erg_text *out, const json_t *status);

/* Seconds since the last snapshot of the resource manager; NAN: there was none. */
void erg_schedule_metrics_age(struct erg_text *out, double age_s);

#endif
