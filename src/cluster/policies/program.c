/* Linear and integer programs, solved by COIN-OR. */
#include "cluster/policies/program.h"

#include "base/memory.h"

#include <coin/Cbc_C_Interface.h>
#include <coin/Clp_C_Interface.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
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

/* ---- the solvers, opened when needed, so that other commands do not load them ---- */

#define CLP_FUNCTIONS(X)                                                                           \
    X(Clp_newModel)                                                                                \
    X(Clp_setLogLevel)                                                                             \
    X(Clp_loadProblem)                                                                             \
    X(Clp_setOptimizationDirection)                                                                \
    X(Clp_initialSolve)                                                                            \
    X(Clp_status)                                                                                  \
    X(Clp_primalColumnSolution)                                                                    \
    X(Clp_deleteModel)
#define CBC_FUNCTIONS(X)                                                                           \
    X(Cbc_newModel)                                                                                \
    X(Cbc_setLogLevel)                                                                             \
    X(Cbc_loadProblem)                                                                             \
    X(Cbc_setObjSense)                                                                             \
    X(Cbc_setInteger)                                                                              \
    X(Cbc_setAllowableFractionGap)                                                                 \
    X(Cbc_solve)                                                                                   \
    X(Cbc_isProvenOptimal)                                                                         \
    X(Cbc_getColSolution)                                                                          \
    X(Cbc_deleteModel)

static struct {
    struct erg_error refusal; /* its message is empty: none */
#define FIELD(name) __typeof__(name) *name;
    CLP_FUNCTIONS(FIELD)
    CBC_FUNCTIONS(FIELD)
#undef FIELD
} coin;

/* A library that stays open; NULL: it cannot be opened, which becomes the refusal. */
static void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        erg_fail(
            &coin.refusal, ERG_FAILED,
            "linear programs need COIN-OR's Clp and Cbc, which cannot be opened (%s); expected "
            "them installed (Debian: coinor-libclp1, coinor-libcbc3)",
            dlerror());
    return library;
}

static void find_function(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (symbol)
        memcpy(function, &symbol, sizeof symbol);
    else
        erg_fail(&coin.refusal, ERG_FAILED,
                 "linear programs need COIN-OR's Clp and Cbc, which have no function %s, expected "
                 "those of Debian's coinor-libclp1 and coinor-libcbc3",
                 name);
}

static void open_solvers(void)
{
    void *clp = open_library("libClp.so.1"), *cbc = clp ? open_library("libCbcSolver.so.3") : NULL;
    if (!cbc)
        return;
#define FIND_CLP(name) find_function(clp, #name, &coin.name);
#define FIND_CBC(name) find_function(cbc, #name, &coin.name);
    CLP_FUNCTIONS(FIND_CLP)
    CBC_FUNCTIONS(FIND_CBC)
}

static int solve_linear(const struct erg_program *program, double *solution, struct erg_error *err)
{
    int columns = (int)program->columns.count, rows = (int)program->rows.count;
    Clp_Simplex *model = coin.Clp_newModel();
    coin.Clp_setLogLevel(model, 0);
    coin.Clp_loadProblem(model, columns, rows, program->columns.first, program->entries.rows,
                         program->entries.values, NULL, program->columns.upper,
                         program->columns.values, program->rows.low, program->rows.high);
    coin.Clp_setOptimizationDirection(model, -1);
    coin.Clp_initialSolve(model);
    int status = coin.Clp_status(model);
    if (status == 0)
        memcpy(solution, coin.Clp_primalColumnSolution(model), (size_t)columns * sizeof *solution);
    coin.Clp_deleteModel(model);
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
    Cbc_Model *model = coin.Cbc_newModel();
    coin.Cbc_setLogLevel(model, 0);
    coin.Cbc_loadProblem(model, columns, rows, program->columns.first, program->entries.rows,
                         program->entries.values, NULL, program->columns.upper,
                         program->columns.values, program->rows.low, program->rows.high);
    coin.Cbc_setObjSense(model, -1);
    for (int i = 0; i < columns; i++)
        coin.Cbc_setInteger(model, i);
    coin.Cbc_setAllowableFractionGap(model, gap);
    coin.Cbc_solve(model);
    bool solved = coin.Cbc_isProvenOptimal(model);
    if (solved)
        for (int i = 0; i < columns; i++)
            solution[i] = round(coin.Cbc_getColSolution(model)[i]);
    coin.Cbc_deleteModel(model);
    if (solved)
        return 0;
    return erg_fail(err, ERG_FAILED, "an integer program of %d columns and %d rows has no solution",
                    columns, rows);
}

int erg_program_solve(const struct erg_program *program, bool integers, double gap,
                      double *solution, struct erg_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (program->columns.count == 0)
        return 0;
    pthread_once(&once, open_solvers);
    if (*coin.refusal.message) {
        if (err)
            *err = coin.refusal;
        return -1;
    }
    return integers ? solve_integer(program, gap, solution, err)
                    : solve_linear(program, solution, err);
}
