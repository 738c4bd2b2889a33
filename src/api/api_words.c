/* The words of options: one list of each, for the library and for who offers them to people. */
#include "ergon/ask.h"

#include "api/door.h"
#include "characterize/study.h"
#include "job/layout.h"
#include "layout/memory/stage_memory.h"
#include "report/figures/figures.h"
#include "search/search.h"
#include "trace/kernel_category.h"
#include "train/run/session.h"

static const char *const devices[] = {
    [ERG_DOOR_EMULATED] = "emulated", [ERG_DOOR_CUDA] = "cuda", NULL};
static const char *const study_devices[] = {"emulated", "host", "cuda", NULL};
static const char *const exports[] = {"megatron", "torchtitan", "profile", "job", NULL};
static const char *const formats[] = {"csv", "jsonl", "chrome", NULL};
static const char *const objectives[] = {"fastest", "least_energy", NULL};
static const char *const picks[] = {"fastest", "least_energy", "knee", NULL};
static const char *const planners[] = {"ergon", "arena", NULL};

const char *const *erg_words(enum erg_word_list list)
{
    switch (list) {
    case ERG_WORDS_ACCOUNTING:
        return erg_memory_accounting_names;
    case ERG_WORDS_CATEGORIES:
        return erg_kernel_rule_names;
    case ERG_WORDS_DEVICE:
        return devices;
    case ERG_WORDS_EXPORT:
        return exports;
    case ERG_WORDS_FORMAT:
        return formats;
    case ERG_WORDS_OBJECTIVE:
        return objectives;
    case ERG_WORDS_PICK:
        return picks;
    case ERG_WORDS_PLANNER:
        return planners;
    case ERG_WORDS_RECOMPUTE:
        return erg_recompute_names;
    case ERG_WORDS_RIGHT:
        return erg_figure_right_names;
    case ERG_WORDS_SEARCH:
        return erg_search_method_names;
    case ERG_WORDS_SENSOR:
        return erg_study_sensor_names;
    case ERG_WORDS_STUDY_DEVICE:
        return study_devices;
    case ERG_WORDS_TRAIN_TYPE:
        return erg_train_type_names;
    }
    return NULL;
}
