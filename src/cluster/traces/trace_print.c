/* Traces that are drawn or imported, written as text. */
#include "cluster/traces/trace_print.h"

#include "base/log.h"
#include "base/text.h"
#include "cluster/traces/generate.h"
#include "cluster/traces/import.h"

static void print(FILE *out, const struct erg_trace_maker *maker)
{
    struct erg_text text = {0};
    erg_trace_maker_write(&text, maker);
    fwrite(text.data, 1, text.count, out);
    erg_text_release(&text);
}

int erg_trace_print(FILE *out, const char *cluster, const char *profiles, const char *recipe,
                    uint64_t seed, struct erg_error *err)
{
    struct erg_fleet *fleet;
    struct erg_trace_maker maker;
    if (erg_fleet_load(&fleet, cluster, err) != 0)
        return -1;
    int status = erg_trace_maker_init(&maker, fleet, profiles, err);
    if (status == 0)
        status = erg_trace_generate(&maker, recipe, seed, err);
    if (status == 0)
        print(out, &maker);
    erg_trace_maker_release(&maker);
    erg_fleet_free(fleet);
    return status;
}

static void say_imported(const struct erg_trace_import *import, const char *path)
{
    erg_log(ERG_LOG_WARNING,
            "%s: %zu job%s of a log as of %s; left out: %zu that asked for no GPUs, %zu that never "
            "ran, %zu that still ran when the log ended, %zu wrong; drawn: the models of %zu, the "
            "GPU types of %zu; %zu ask for another number of GPUs that profiles have",
            path, import->jobs, erg_plural(import->jobs), import->layout, import->without_gpus,
            import->never_ran, import->still_ran, import->wrong, import->given_model,
            import->given_type, import->resized);
    if (import->with_wrong_part > 0)
        erg_log(ERG_LOG_WARNING, "%s: %zu job%s lack%s a task or an attempt that is wrong", path,
                import->with_wrong_part, erg_plural(import->with_wrong_part),
                import->with_wrong_part == 1 ? "s" : "");
    if (*import->first_wrong.message)
        erg_log(ERG_LOG_WARNING, "the first that is wrong: %s", import->first_wrong.message);
}

int erg_trace_print_import(FILE *out, const char *cluster, const char *profiles, const char *log,
                           uint64_t seed, struct erg_error *err)
{
    struct erg_fleet *fleet;
    struct erg_trace_maker maker;
    struct erg_trace_import import;
    if (erg_fleet_load(&fleet, cluster, err) != 0)
        return -1;
    int status = erg_trace_maker_init(&maker, fleet, profiles, err);
    if (status == 0)
        status = erg_trace_import(&import, &maker, log, seed, err);
    if (status == 0) {
        say_imported(&import, log);
        print(out, &maker);
    }
    erg_trace_maker_release(&maker);
    erg_fleet_free(fleet);
    return status;
}
