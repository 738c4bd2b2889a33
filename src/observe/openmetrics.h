/*
 * OpenMetrics: the state of all GPUs as text for Prometheus and other scrapers. Unknown values are
 * missing.
 *
 * Format: OpenMetrics specification 1.0, text format: names with units, counters with "_total", one
 * family after the other, "# EOF" at the end.
 */
#ifndef ERG_OBSERVE_OPENMETRICS_H
#define ERG_OBSERVE_OPENMETRICS_H

#include "base/text.h"
#include "observe/live.h"
#include "telemetry/rapl.h"

#define ERG_OPENMETRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* `cpu` NULL: the CPU's energy cannot be read. */
void erg_openmetrics_text(struct erg_text *out, const struct erg_live_view *view,
                          const struct erg_rapl_reading *cpu);

/* The same in the older text format 0.0.4, which has neither units, infos nor state sets. */
#define ERG_PROMETHEUS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
void erg_prometheus_text(struct erg_text *out, const struct erg_live_view *view,
                         const struct erg_rapl_reading *cpu);

/*
 * Whether an Accept header (RFC 9110, 12.5.1; NULL: none) accepts OpenMetrics 1.0, and does not
 * prefer text/plain to it.
 */
bool erg_openmetrics_accepted(const char *accept);

/* ---- for other metrics ---- */

/* The lines before the samples of a family; `unit` "": none. */
void erg_openmetrics_add_family(struct erg_text *out, const char *name, const char *type,
                                const char *unit, const char *help);

/* name="value", escaped. */
void erg_openmetrics_add_label(struct erg_text *out, const char *name, const char *value);

/* The family with this program's version. */
void erg_openmetrics_add_build(struct erg_text *out);

/* Converts an OpenMetrics text to the format 0.0.4. */
void erg_openmetrics_add_older(struct erg_text *out, const char *text);

#endif
