/* A baseline for byte-level models: the interpolated byte 3-gram.
 *
 * usage: byte_trigram TRAINING_FILE HELD_OUT_FILE [BYTES]
 *
 * p(c | a b) = w3 n(abc)/n(ab) + w2 n(bc)/n(b) + w1 n(c)/n + w0/256
 *
 * Jelinek and Mercer, "Interpolated estimation of Markov source parameters from sparse data" (1980): the weights depend
 * on how often the context ab was seen, and are fitted by expectation maximisation on a slice of the training text that
 * the counts have not seen. The counts are then taken anew from all of the training text. Prints the mean loss in nats
 * a byte over the held-out file, or its first BYTES bytes after the first; the two bytes before the first predicted one
 * are those of the file, or spaces. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS = 256, ORDERS = 4, BUCKETS = 24, SLICE_SHARE = 20, ROUNDS = 30 };

typedef struct byte_text {
    unsigned char *bytes;
    size_t count;
} byte_text;

typedef struct trigram {
    uint32_t *three;                      /* [a][b][c] */
    uint32_t two[SYMBOLS][SYMBOLS];       /* [b][c] */
    uint32_t one[SYMBOLS];                /* [c] */
    uint32_t three_sum[SYMBOLS][SYMBOLS]; /* of [a][b][·]: the context's count */
    uint32_t two_sum[SYMBOLS];
    uint32_t one_sum;
    double weights[BUCKETS][ORDERS]; /* by the bit length of the context's count; [0]: uniform, … [3]: three bytes */
} trigram;

static byte_text read_text(const char *path) {
    byte_text text = {0};
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    long size = ftell(file);
    rewind(file);
    text.bytes = size < 0 ? NULL : malloc((size_t)size + 1);
    text.count = text.bytes ? fread(text.bytes, 1, (size_t)size, file) : 0;
    fclose(file);
    if (text.count != (size_t)size || text.count < 1000) {
        fprintf(stderr, "%s: cannot be read, or is too short for statistics\n", path);
        exit(1);
    }
    return text;
}

static void count_text(trigram *model, const unsigned char *bytes, size_t count) {
    memset(model->three, 0, sizeof(uint32_t) * SYMBOLS * SYMBOLS * SYMBOLS);
    memset(model->two, 0, sizeof model->two);
    memset(model->one, 0, sizeof model->one);
    memset(model->three_sum, 0, sizeof model->three_sum);
    memset(model->two_sum, 0, sizeof model->two_sum);
    model->one_sum = 0;
    for (size_t i = 2; i < count; i++) {
        unsigned a = bytes[i - 2], b = bytes[i - 1], c = bytes[i];
        model->three[(a * SYMBOLS + b) * SYMBOLS + c]++;
        model->three_sum[a][b]++;
        model->two[b][c]++;
        model->two_sum[b]++;
        model->one[c]++;
        model->one_sum++;
    }
}

static int bucket_of(const trigram *model, unsigned a, unsigned b) {
    int bits = 0;
    for (uint32_t count = model->three_sum[a][b]; count; count >>= 1) bits++;
    return bits < BUCKETS ? bits : BUCKETS - 1;
}

/* The four estimates of p(c | a b), before weighting. An unseen context knows nothing. */
static void estimate(const trigram *model, unsigned a, unsigned b, unsigned c, double p[ORDERS]) {
    p[0] = 1.0 / SYMBOLS;
    p[1] = (double)model->one[c] / model->one_sum;
    p[2] = model->two_sum[b] ? (double)model->two[b][c] / model->two_sum[b] : 0;
    uint32_t seen = model->three_sum[a][b];
    p[3] = seen ? (double)model->three[(a * SYMBOLS + b) * SYMBOLS + c] / seen : 0;
}

/* Expectation maximisation: each weight becomes its share in what was predicted. */
static void fit_weights(trigram *model, const unsigned char *bytes, size_t count) {
    for (int k = 0; k < BUCKETS; k++)
        for (int order = 0; order < ORDERS; order++) model->weights[k][order] = 1.0 / ORDERS;
    for (int round = 0; round < ROUNDS; round++) {
        double shares[BUCKETS][ORDERS] = {{0}};
        for (size_t i = 2; i < count; i++) {
            double p[ORDERS], sum = 0;
            int k = bucket_of(model, bytes[i - 2], bytes[i - 1]);
            estimate(model, bytes[i - 2], bytes[i - 1], bytes[i], p);
            for (int order = 0; order < ORDERS; order++) sum += p[order] *= model->weights[k][order];
            for (int order = 0; order < ORDERS; order++) shares[k][order] += p[order] / sum;
        }
        for (int k = 0; k < BUCKETS; k++) {
            double sum = 0.01; /* a little of the old weights, for buckets that the slice does not have */
            for (int order = 0; order < ORDERS; order++) sum += shares[k][order];
            for (int order = 0; order < ORDERS; order++)
                model->weights[k][order] = (shares[k][order] + 0.01 * model->weights[k][order]) / sum;
        }
    }
}

/* The mean of -log p over bytes 1 … count of the text. */
static double mean_loss(const trigram *model, const byte_text *text, size_t count) {
    double sum = 0;
    for (size_t i = 1; i <= count; i++) {
        unsigned a = i > 1 ? text->bytes[i - 2] : ' ', b = text->bytes[i - 1];
        double p[ORDERS], mixed = 0;
        int k = bucket_of(model, a, b);
        estimate(model, a, b, text->bytes[i], p);
        for (int order = 0; order < ORDERS; order++) mixed += model->weights[k][order] * p[order];
        sum -= log(mixed);
    }
    return sum / (double)count;
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: byte_trigram TRAINING_FILE HELD_OUT_FILE [BYTES]\n");
        return 2;
    }
    byte_text training = read_text(argv[1]), held_out = read_text(argv[2]);
    size_t wanted = argc == 4 ? strtoull(argv[3], NULL, 10) : held_out.count - 1;
    if (wanted == 0 || wanted > held_out.count - 1) wanted = held_out.count - 1;
    trigram *model = calloc(1, sizeof *model);
    if (model) model->three = calloc((size_t)SYMBOLS * SYMBOLS * SYMBOLS, sizeof(uint32_t));
    if (!model || !model->three) {
        fprintf(stderr, "byte_trigram: out of memory\n");
        return 1;
    }
    size_t slice = training.count / SLICE_SHARE;
    count_text(model, training.bytes, training.count - slice);
    fit_weights(model, training.bytes + training.count - slice, slice);
    count_text(model, training.bytes, training.count);
    printf("%.4f\n", mean_loss(model, &held_out, wanted));
    free(model->three);
    free(model);
    free(training.bytes);
    free(held_out.bytes);
    return 0;
}
