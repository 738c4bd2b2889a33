/* The findings of doctor: lines for people, or a JSON document. */
#ifndef ERG_OBSERVE_DOCTOR_PRINT_H
#define ERG_OBSERVE_DOCTOR_PRINT_H

#include "observe/doctor.h"

#include <stdio.h>

void erg_doctor_print(FILE *out, const struct erg_doctor *doctor);
void erg_doctor_print_json(FILE *out, const struct erg_doctor *doctor);

#endif
