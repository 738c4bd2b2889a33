/* What the files of the fake resource manager share. */
#ifndef ERGON_TESTS_FAKE_ENGINE_INTERNAL_H
#define ERGON_TESTS_FAKE_ENGINE_INTERNAL_H

#include "fake_engine.h"

enum verb { PLACE, HOLD, STOP, KILL, HAND_BACK };

struct fake_late_call {
    double at_s;
    enum verb verb;
    int job, run; /* a late signal is only for the run that it was meant for */
    struct erg_placement placement;
    int gpus;
};

/* What is on disk of the manager: of a job what a start, a hold or a release changes. */
struct fake_state {
    double at_s;
    size_t jobs_count;
    uint32_t next_id;
    struct fake_kept {
        enum erg_live_state state;
        bool held_by_administrator;
        int restarts;
        struct erg_placement asked;
    } * jobs;
};

/* Only the first is kept. */
void fake_say(char *where, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define WRONG(fake, ...) fake_say((fake)->wrong, sizeof(fake)->wrong, __VA_ARGS__)
#define BROKEN(fake, ...) fake_say((fake)->broken, sizeof(fake)->broken, __VA_ARGS__)

/* fake_manager.c: what happens to jobs and their trainers. */
double fake_between(struct fake_engine *fake, double least, double most);
int fake_bits(uint64_t gpus);
void fake_catch_up(struct fake_engine *fake, struct fake_job *job);
void fake_end_trainer(struct fake_engine *fake, struct fake_job *job, enum fake_leaving leaves);
void fake_excuse(struct fake_job *job);
void fake_finish(struct fake_engine *fake, struct fake_job *job);
void fake_forget_late(struct fake_engine *fake, size_t index);
void fake_free_state(struct fake_state *state);
uint64_t fake_gpus_of(const struct fake_engine *fake, int node);
bool fake_has_gpus(const struct fake_job *job);
void fake_hold_job(struct fake_job *job, bool by_administrator);
bool fake_is_foreign(const struct fake_job *job);
bool fake_is_over(const struct fake_job *job);
void fake_leave(struct fake_engine *fake, struct fake_job *job, int status);
void fake_release_job(struct fake_engine *fake, struct fake_job *job, double after_s);
void fake_save_state(struct fake_engine *fake);
void fake_step_late(struct fake_engine *fake, size_t index);
void fake_apply(struct fake_engine *fake, struct fake_job *job, enum verb verb,
                const struct erg_placement *placement, int gpus);

#endif
