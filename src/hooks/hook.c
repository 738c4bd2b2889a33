/* Opens and closes a hook. */
#include "hooks/hook_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "launch/launch.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- fork() ---- */

/*
 * The number of forks between the first process with hooks and this one: read without a system
 * call.
 */
static _Atomic unsigned forks;

static void count_fork(void)
{
    forks++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

int erg_hook_check(const struct erg_hook *hook, const char *what, struct erg_error *err)
{
    if (hook->forks != forks)
        return erg_fail(err, ERG_FAILED,
                        "%s: this process is a child of the one that opened the hook, expected "
                        "the process itself",
                        what);
    if (!hook->lost)
        return 0;
    if (err)
        *err = hook->error;
    return -1;
}

/* ---- options ---- */

void erg_hook_defaults(struct erg_hook_options *options)
{
    *options = (struct erg_hook_options){
        .size = sizeof *options, .point = -1, .mode = ERG_HOOK_FOLLOW, .strict = 1};
}

static int check_numbers(const struct erg_hook_options *options, struct erg_error *err)
{
    const bool planned = options->plan || options->plan_text;
    if (options->mode < ERG_HOOK_OBSERVE || options->mode > ERG_HOOK_PROFILE)
        return erg_fail(err, ERG_USAGE, "opening a hook: there is no mode %d", options->mode);
    if (options->plan && options->plan_text)
        return erg_fail(
            err, ERG_USAGE,
            "opening a hook: plan and plan_text exclude each other, expected one of them");
    if (options->mode == ERG_HOOK_FOLLOW && !planned)
        return erg_fail(err, ERG_USAGE,
                        "opening a hook: following needs a plan, expected plan or plan_text");
    if (options->stage < 0 || options->replica < 0 || options->point < -1)
        return erg_fail(err, ERG_USAGE,
                        "opening a hook: stage %d, replica %d and point %d, expected 0 or more "
                        "(point -1: the selected one)",
                        options->stage, options->replica, options->point);
    if (options->markers < ERG_MARK_HOST || options->markers > ERG_MARK_MEMORY)
        return erg_fail(err, ERG_USAGE, "opening a hook: there is no kind of markers %d",
                        options->markers);
    if (!(options->dwell_s >= 0) || !(options->least_change_mhz >= 0))
        return erg_fail(err, ERG_USAGE,
                        "opening a hook: dwell_s %g and least_change_mhz %g, expected 0 or more",
                        options->dwell_s, options->least_change_mhz);
    return 0;
}

/* Combinations that a hook refuses. */
static int check_there(const struct erg_hook_options *options, struct erg_error *err)
{
    if (options->daemon)
        return erg_fail(err, ERG_USAGE,
                        "opening a hook: the option daemon is '%s', expected NULL; $ERGON_DAEMON "
                        "names the socket of a daemon",
                        options->daemon);
    return 0;
}

/* ---- the plan ---- */

static int load_plan(struct erg_hook *hook, struct erg_error *err)
{
    const struct erg_hook_options *options = &hook->options;
    if (options->plan)
        return erg_plan_load(&hook->plan, options->plan, err);
    return options->plan_text ? erg_plan_parse(&hook->plan, "plan_text", options->plan_text,
                                               strlen(options->plan_text), err)
                              : 0;
}

static int choose_point(struct erg_hook *hook, struct erg_error *err)
{
    const struct erg_hook_options *options = &hook->options;
    const struct erg_schedule *schedule = &hook->plan->schedule;
    const struct erg_programme_input input = {
        .method = options->method,
        .number = (size_t)(options->point + 1),
        .stage = options->stage,
        .clocks_only = options->clocks_only || options->mode != ERG_HOOK_FOLLOW,
    };
    if (erg_programme_choose(hook->plan, &input, &hook->method, &hook->chosen, err) != 0)
        return erg_fail_context(err, "opening a hook at point %d, from 0", options->point);
    const struct erg_plan_method *method = &hook->plan->methods[hook->method];
    hook->running = hook->chosen;
    hook->points = erg_xcalloc(method->point_count + method->slower_count, sizeof *hook->points);
    hook->instructions = schedule->instructions + (size_t)options->stage * schedule->per_stage;
    return 0;
}

int erg_hook_make_point(struct erg_hook *hook, size_t point, struct erg_error *err)
{
    struct hook_point *made = &hook->points[point];
    if (made->made)
        return 0;
    struct erg_programme_request request = {
        .plan = hook->plan,
        .point = &hook->plan->methods[hook->method].points[point],
        .stage = (size_t)hook->options.stage,
        .supported = hook->clocks.count ? &hook->clocks : NULL,
    };
    erg_programme_bound(&request, hook->options.dwell_s, hook->options.least_change_mhz);
    if (erg_programme_init(&made->programme, &request, err) != 0)
        return -1;
    const struct erg_programme *programme = &made->programme;
    made->classes = erg_xcalloc(programme->count, sizeof *made->classes);
    for (uint32_t i = 0; i < programme->count; i++)
        made->classes[i] = (uint16_t)erg_hook_find_class(
            hook, (int)hook->instructions[i].direction, (int)hook->instructions[i].chunk,
            programme->groups[programme->passes[i].group].clock_mhz, programme->passes[i].time_s);
    made->made = true;
    return 0;
}

/* For the order of passes only. */
static int take_schedule(struct erg_hook *hook, struct erg_error *err)
{
    const struct erg_schedule *schedule = &hook->plan->schedule;
    const size_t stages = schedule->pipeline.stages;
    if ((size_t)hook->options.stage >= stages)
        return erg_fail(err, ERG_USAGE,
                        "opening a hook: stage %d of a pipeline of %zu, expected 0 to %zu",
                        hook->options.stage, stages, stages - 1);
    hook->instructions = schedule->instructions + (size_t)hook->options.stage * schedule->per_stage;
    return 0;
}

static int open_plan(struct erg_hook *hook, struct erg_error *err)
{
    if (load_plan(hook, err) != 0)
        return -1;
    if (!hook->plan)
        return 0;
    if (hook->options.mode == ERG_HOOK_PROFILE)
        return take_schedule(hook, err);
    return choose_point(hook, err) || erg_hook_make_point(hook, hook->chosen, err) ? -1 : 0;
}

/* ---- the GPU ---- */

static int find_gpu(struct erg_hook *hook, struct erg_error *err)
{
    struct erg_launch_environment env;
    if (erg_gpus_open(&hook->gpus, hook->options.gpu, err) != 0)
        return -1;
    const size_t count = erg_gpus_count(hook->gpus);
    hook->clock.gpus = hook->gpus;
    if (count == 1)
        return 0;
    if (hook->options.gpu)
        return erg_fail(err, ERG_USAGE, "opening a hook: '%s' names %zu GPUs, expected one",
                        hook->options.gpu, count);
    if (erg_launch_environment_read(&env, err) != 0)
        return erg_fail_context(err, "this process sees %zu GPUs and its rank's GPU is unknown",
                                count);
    if ((size_t)env.local_rank >= count)
        return erg_fail(err, ERG_USAGE,
                        "opening a hook: local rank %d sees %zu GPUs, expected one for each rank",
                        env.local_rank, count);
    hook->clock.gpu = (size_t)env.local_rank;
    return 0;
}

static int open_clocks(struct erg_hook *hook, struct erg_error *err)
{
    const struct erg_clock_thread_options options = {
        .gpus = hook->gpus,
        .gpu = hook->clock.gpu,
        .due = erg_hook_clock_due,
        .accepted = erg_hook_clock_accepted,
        .context = &hook->clock,
        .required = true,
    };
    return erg_clock_thread_open(&hook->clock.thread, &options, err);
}

/* Opens its own list, since only one thread at a time may read a list's GPU. */
static int open_energy(struct erg_hook *hook, struct erg_error *err)
{
    struct erg_gpus *gpus;
    if (erg_gpus_open(&gpus, hook->options.gpu, err) != 0)
        return -1;
    int result = erg_hook_energy_open(&hook->energy, gpus, hook->clock.gpu, err);
    erg_gpus_close(gpus);
    return result;
}

/* ---- open and close ---- */

/* Releases everything except its GPU's clocks. */
static void release(struct erg_hook *hook)
{
    const struct erg_plan_method *method = hook->plan ? &hook->plan->methods[hook->method] : NULL;
    const size_t count = method && hook->points ? method->point_count + method->slower_count : 0;
    for (size_t i = 0; i < count; i++) {
        erg_programme_release(&hook->points[i].programme);
        free(hook->points[i].classes);
    }
    free(hook->points);
    erg_hook_profile_close(hook);
    erg_hook_energy_close(hook->energy);
    erg_clock_list_release(&hook->clocks);
    erg_gpu_marks_close(hook->marks.gpu);
    erg_gpus_close(hook->gpus);
    erg_plan_free(hook->plan);
    free(hook->agreement.messages);
    free(hook->agreement.seconds);
    free(hook);
}

static int open_hook(struct erg_hook *hook, struct erg_error *err)
{
    const bool profiles = hook->options.mode == ERG_HOOK_PROFILE;
    const bool sets = profiles || hook->options.mode == ERG_HOOK_FOLLOW;
    if (check_numbers(&hook->options, err) || check_there(&hook->options, err))
        return -1;
    if (profiles)
        hook->options.energy = 1;
    if ((sets || hook->options.energy) && find_gpu(hook, err) != 0)
        return -1;
    if (sets && erg_clocks_supported(hook->gpus, hook->clock.gpu, &hook->clocks, err) != 0)
        return -1;
    if (open_plan(hook, err) != 0 ||
        (hook->options.markers != ERG_MARK_HOST &&
         erg_gpu_marks_open(&hook->marks.gpu, hook->options.markers == ERG_MARK_MEMORY, err) != 0))
        return -1;
    if (hook->options.energy && open_energy(hook, err) != 0)
        return -1;
    if (profiles)
        erg_hook_profile_open(hook);
    return sets ? open_clocks(hook, err) : 0;
}

int erg_hook_open(struct erg_hook **out, const struct erg_hook_options *options,
                  struct erg_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct erg_hook *hook = erg_xcalloc(1, sizeof *hook);
    pthread_once(&once, watch_forks);
    hook->forks = forks;
    hook->in_pass = -1;
    hook->next_step = -1;
    hook->ratio = 1;
    hook->agreement.choice = (struct erg_hook_choice){
        .from_step = -1, .late_replica = -1, .time_s = NAN, .energy_j = NAN, .held_energy_j = NAN};
    erg_hook_clock_init(&hook->clock, hook);
    hook->marks.where = (struct hook_where){.position = -1, .ratio = 1};
    erg_hook_defaults(&hook->options);
    memcpy(&hook->options, options,
           options->size < sizeof *options ? options->size : sizeof *options);
    if (open_hook(hook, err) != 0) {
        release(hook);
        return -1;
    }
    *out = hook;
    return 0;
}

void erg_hook_end_clocks(struct erg_hook *hook, const char *why)
{
    if (hook->clock.thread)
        erg_clock_thread_stop(hook->clock.thread, NULL); /* the guardian unlocks at the end */
    if (!hook->trouble[0])
        snprintf(hook->trouble, sizeof hook->trouble, "%s", why);
}

int erg_hook_close(struct erg_hook *hook, struct erg_error *err)
{
    if (!hook || hook->forks != forks) /* a child does not have its threads and leaves it alone */
        return 0;
    int result = erg_clock_thread_close(hook->clock.thread, err);
    release(hook);
    return result;
}
