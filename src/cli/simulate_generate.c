/* ergon simulate --generate: a trace drawn as a file says. */
#include "cli/simulate_generate.h"

#include "cluster/traces/generate.h"

#include <stdio.h>

int simulate_generate(const struct simulate_generate *request, struct erg_error *err)
{
    struct erg_fleet *fleet;
    struct erg_trace_maker maker;
    if (erg_fleet_load(&fleet, request->cluster, err) != 0)
        return -1;
    int status = erg_trace_maker_init(&maker, fleet, request->profiles, err);
    if (status == 0)
        status = erg_trace_generate(&maker, request->recipe, request->seed, err);
    if (status == 0) {
        struct erg_text text = {0};
        erg_trace_maker_write(&text, &maker);
        fwrite(text.data, 1, text.count, stdout);
        erg_text_release(&text);
    }
    erg_trace_maker_release(&maker);
    erg_fleet_free(fleet);
    return status;
}
