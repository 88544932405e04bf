/* Plays the session for a model: lends views as <sherd/session.h> states them and no more than that. Every
 * micro-batch starts with NaN in all gradients and work memory; a bracket sees only the parameters its unit may
 * read; a unit's activations turn to NaN once its backward is done. */
#ifndef TESTS_MODEL_HARNESS_H
#define TESTS_MODEL_HARNESS_H

#include "runtime/model/model.h"

enum { HARNESS_FIRST_SEQUENCE = 1000 }; /* the micro-batch's number in its run */

typedef struct harness {
    shd_model_config config;
    shd_model *model;
    const sherd_model *description;
    shd_pool *pool;
    int64_t rows, loss_count;        /* a loss for every row, or of mse for every number of it */
    bool numbers;                    /* targets are numbers, as of mse */
    int32_t *inputs, *targets;       /* [rows] */
    float *features, *values;        /* of mlp: [rows, inputs], [rows, outputs] */
    double *losses;                  /* [loss_count] */
    double *correct;                 /* [rows] */
    float **parameters, **gradients; /* by tensor; gradients NULL where frozen */
    void **stored;                   /* by tensor: the parameters in the model's precision, see harness_store */
    void **outputs, **activations, **remade;
    void *scratch, *logits;
} harness;

/* Parameters become random: matrices σ `sigma`, gains around 1, biases around 0. Inputs and targets random, a fifth
 * of the targets ignored. Features are such that every precision holds them. */
void harness_open(harness *h, const shd_model_config *config, double sigma, uint64_t seed);
void harness_close(harness *h);

/* Rounds parameters to the model's precision, which changes them, and lends them so from now on. Every pass begins with
 * it, for a test may have set some. */
void harness_store(harness *h);

int64_t harness_elements(const harness *h, int32_t tensor);
int64_t harness_counted(const harness *h);
/* Standard normal numbers of the tests' own. */
double harness_normal(uint64_t *state);

void harness_train(harness *h, float loss_scale);
void harness_evaluate(harness *h);

#endif
