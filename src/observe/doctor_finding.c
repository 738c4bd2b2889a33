/* What the doctor found: the list of findings. */
#include "observe/doctor_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *erg_finding_state_name(enum erg_finding_state state)
{
    static const char *const names[] = {"ok", "limited", "missing"};
    return names[state];
}

void erg_doctor_note(struct erg_doctor *doctor, enum erg_finding_state state, int gpu,
                     const char *subject, const char *advice, const char *fact, ...)
{
    char text[1200];
    va_list arguments;
    va_start(arguments, fact);
    vsnprintf(text, sizeof text, fact, arguments);
    va_end(arguments);
    ERG_PUSH(doctor, items,
             (struct erg_finding){.state = state,
                                  .gpu = gpu,
                                  .subject = subject,
                                  .fact = erg_arena_strdup(&doctor->arena, text),
                                  .advice = advice});
}

void erg_doctor_release(struct erg_doctor *doctor)
{
    erg_arena_release(&doctor->arena);
    free(doctor->items);
    free(doctor->gpus);
    *doctor = (struct erg_doctor){0};
}
