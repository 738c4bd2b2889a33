/*
 * A program of the day on which ERG_HOOK_ABI became 1, built against the headers of that day in v1/
 * and run with the library of today: it has to run for ever. Usage: hook_v1 PLAN.json
 */
#include <ergon/error.h>
#include <ergon/hook.h>

#include <stdio.h>
#include <string.h>

static int exchanges;

static int exchange(void *context, const void *mine, void *all, size_t bytes)
{
    exchanges += *(int *)context;
    memcpy(all, mine, bytes);
    return bytes == 64 ? 0 : -1;
}

static int step(struct erg_hook *hook, struct erg_error *err)
{
    if (erg_hook_step_begin(hook, err) != 0)
        return -1;
    for (int i = 0; i < 4; i++)
        if (erg_hook_begin(hook, ERG_FORWARD, 0, i, NULL, err) || erg_hook_end(hook, NULL, err) ||
            erg_hook_begin_named(hook, "backward", NULL, err) || erg_hook_end(hook, NULL, err))
            return -1;
    return erg_hook_step_end(hook, err);
}

static int use(struct erg_hook *hook, struct erg_error *err)
{
    struct erg_hook_choice choice = {.size = sizeof choice};
    int one = 1;
    if (erg_hook_pause(hook) || erg_hook_resume(hook) ||
        erg_hook_agree(hook, exchange, &one, 1, err))
        return -1;
    for (int i = 0; i < 16; i++)
        if (step(hook, err) != 0)
            return -1;
    if (erg_hook_late(hook, 1.2, &choice, err) || strcmp(choice.method, "sequential+clocks") != 0 ||
        choice.from_step != 16 || step(hook, err))
        return -1;
    return erg_hook_agreed(hook, &choice) || choice.from_step != -1 ||
                   erg_hook_begin(hook, ERG_OTHER, -1, -1, NULL, err) ||
                   erg_hook_end(hook, NULL, err)
               ? -1
               : 0;
}

int main(int argc, char **argv)
{
    struct erg_hook_options options;
    struct erg_hook *hook;
    struct erg_hook_stats stats = {.size = sizeof stats};
    struct erg_hook_class about = {.size = sizeof about};
    struct erg_error err = {0};
    erg_hook_defaults(&options);
    options.plan = argc > 1 ? argv[1] : NULL;
    options.gpu = "0";
    if (options.size != sizeof options || options.mode != ERG_HOOK_FOLLOW ||
        erg_hook_open(&hook, &options, &err) || use(hook, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int good = erg_hook_stats(hook, &stats) == 0 && stats.steps == 17 && stats.passes == 17 * 8 &&
               stats.trouble[0] == '\0' && stats.lease == ERG_HOOK_LEASE_DIRECT &&
               erg_hook_class(hook, 0, &about) == 0 && about.kind == ERG_FORWARD &&
               about.count > 0 && exchanges == 1;
    printf("hooks of version %d: %s\n", ERG_HOOK_ABI, good ? "good" : "wrong");
    return erg_hook_close(hook, &err) != 0 || !good;
}
