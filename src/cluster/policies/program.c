/* Linear and integer programs, solved by COIN-OR. */
#include "cluster/policies/program.h"

#include "base/memory.h"

#include <coin/Cbc_C_Interface.h>
#include <coin/Clp_C_Interface.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

void erg_program_release(struct erg_program *program)
{
    free(program->rows.low);
    free(program->rows.high);
    free(program->columns.values);
    free(program->columns.upper);
    free(program->columns.first);
    free(program->entries.rows);
    free(program->entries.values);
    *program = (struct erg_program){0};
}

void erg_program_reset(struct erg_program *program)
{
    program->rows.count = program->columns.count = program->entries.count = 0;
}

int erg_program_row(struct erg_program *program, double low, double high)
{
    size_t count = program->rows.count++;
    if (count == program->rows.capacity) {
        size_t capacity = program->rows.capacity = erg_grow_capacity(count, count + 1);
        program->rows.low = erg_xrealloc(program->rows.low, capacity, sizeof(double));
        program->rows.high = erg_xrealloc(program->rows.high, capacity, sizeof(double));
    }
    program->rows.low[count] = low;
    program->rows.high[count] = high;
    return (int)count;
}

int erg_program_column(struct erg_program *program, double value, double upper)
{
    size_t count = program->columns.count++;
    if (count == program->columns.capacity) {
        size_t capacity = program->columns.capacity = erg_grow_capacity(count, count + 1);
        program->columns.values = erg_xrealloc(program->columns.values, capacity, sizeof(double));
        program->columns.upper = erg_xrealloc(program->columns.upper, capacity, sizeof(double));
        program->columns.first = erg_xrealloc(program->columns.first, capacity + 1, sizeof(int));
    }
    program->columns.values[count] = value;
    program->columns.upper[count] = upper;
    program->columns.first[count] = (int)program->entries.count;
    program->columns.first[count + 1] = (int)program->entries.count;
    return (int)count;
}

void erg_program_entry(struct erg_program *program, int row, double value)
{
    size_t count = program->entries.count++;
    if (count == program->entries.capacity) {
        size_t capacity = program->entries.capacity = erg_grow_capacity(count, count + 1);
        program->entries.rows = erg_xrealloc(program->entries.rows, capacity, sizeof(int));
        program->entries.values = erg_xrealloc(program->entries.values, capacity, sizeof(double));
    }
    program->entries.rows[count] = row;
    program->entries.values[count] = value;
    program->columns.first[program->columns.count] = (int)program->entries.count;
}

static int solve_linear(const struct erg_program *program, double *solution, struct erg_error *err)
{
    int columns = (int)program->columns.count, rows = (int)program->rows.count;
    Clp_Simplex *model = Clp_newModel();
    Clp_setLogLevel(model, 0);
    Clp_loadProblem(model, columns, rows, program->columns.first, program->entries.rows,
                    program->entries.values, NULL, program->columns.upper, program->columns.values,
                    program->rows.low, program->rows.high);
    Clp_setOptimizationDirection(model, -1);
    Clp_initialSolve(model);
    int status = Clp_status(model);
    if (status == 0)
        memcpy(solution, Clp_primalColumnSolution(model), (size_t)columns * sizeof *solution);
    Clp_deleteModel(model);
    if (status == 0)
        return 0;
    return erg_fail(err, ERG_FAILED, "a linear program of %d columns and %d rows %s", columns, rows,
                    status == 1   ? "has no feasible solution"
                    : status == 2 ? "has no bound"
                                  : "was given up by the solver");
}

static int solve_integer(const struct erg_program *program, double gap, double *solution,
                         struct erg_error *err)
{
    int columns = (int)program->columns.count, rows = (int)program->rows.count;
    Cbc_Model *model = Cbc_newModel();
    Cbc_setLogLevel(model, 0);
    Cbc_loadProblem(model, columns, rows, program->columns.first, program->entries.rows,
                    program->entries.values, NULL, program->columns.upper, program->columns.values,
                    program->rows.low, program->rows.high);
    Cbc_setObjSense(model, -1);
    for (int i = 0; i < columns; i++)
        Cbc_setInteger(model, i);
    Cbc_setAllowableFractionGap(model, gap);
    Cbc_solve(model);
    bool solved = Cbc_isProvenOptimal(model);
    if (solved)
        for (int i = 0; i < columns; i++)
            solution[i] = round(Cbc_getColSolution(model)[i]);
    Cbc_deleteModel(model);
    if (solved)
        return 0;
    return erg_fail(err, ERG_FAILED, "an integer program of %d columns and %d rows has no solution",
                    columns, rows);
}

int erg_program_solve(const struct erg_program *program, bool integers, double gap,
                      double *solution, struct erg_error *err)
{
    if (program->columns.count == 0)
        return 0;
    return integers ? solve_integer(program, gap, solution, err)
                    : solve_linear(program, solution, err);
}
