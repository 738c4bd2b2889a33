/* Shared by the files of report/ only. */
#ifndef ERG_REPORT_INTERNAL_H
#define ERG_REPORT_INTERNAL_H

#include "io/json.h"
#include "plan/plan.h"
#include "report/report.h"

enum {
    ERG_MEMORY_SCHEMA_VERSION = 1,
    ERG_LAYOUTS_SCHEMA_VERSION = 1,
    ERG_CLUSTER_SCHEMA_VERSION = 1,
    ERG_SWEEP_SCHEMA_VERSION = 1,
    ERG_TRAINING_SCHEMA_VERSION = 1,
};

/* Whether the document is a plan that this version can show. */
int erg_report_check(const json_t *plan, struct erg_error *err);

/* A member of an object as text or whole number; the fallback when it is not one. */
const char *erg_report_string(const json_t *object, const char *key, const char *fallback);
long erg_report_long(const json_t *object, const char *key, long fallback);

/* The GPUs that a stage lies on, an item of "kinds"; NULL where the plan does not say. */
const json_t *erg_report_stage_kind(const json_t *plan, size_t stage);

/* The pages (src/report/page), compiled in by CMake; "@PLAN@" stands where the document goes. */
extern const char erg_report_page[];
extern const char erg_report_memory_page[];
extern const char erg_report_layouts_page[];
extern const char erg_report_cluster_page[];
extern const char erg_report_sweep_page[];
extern const char erg_report_training_page[];
extern const char erg_report_live_page[];

#endif
