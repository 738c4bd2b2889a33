/* The state of one optimization, shared by the files of optimize/ only. */
#ifndef ERG_OPTIMIZATION_INTERNAL_H
#define ERG_OPTIMIZATION_INTERNAL_H

#include "optimize/optimize.h"
#include "optimize/survey.h"

struct erg_optimization {
    const struct erg_optimize_request *request;
    const struct erg_job *job;
    struct erg_workload_request workload_request;
    struct erg_workload workload;
    struct erg_lab *lab;
    struct erg_profile_options profiler;
    struct erg_survey_request survey_request;
    struct erg_survey survey;
    struct erg_method_request plan_request;
    struct erg_method_result methods[ERG_METHOD_COUNT];
    enum erg_method selected_method;
    size_t selected_point;
    const char *selected_rule;
    size_t verified; /* configurations measured because a plan used them */
};

/* The document of a finished optimization. */
json_t *erg_optimization_document(const struct erg_optimization *optimization,
                                  struct erg_error *err);

#endif
