// Batch normalisation in training with the activation behind it (Ioffe and Szegedy 2015), forward and gradient.
//
// A task is a channel: its maps stay in the cache while they are summed, normalised and activated.
#include <algorithm>
#include <cmath>

#include "arguments.h"
#include "arithmetic.h"
#include "parallel.h"

namespace {

using namespace msrun;

struct Identity {
  static float value(float z) { return z; }
  static float slope(float) { return 1.0f; }
};

struct ReLU {
  static float value(float z) { return z < 0.0f ? 0.0f : z; }
  static float slope(float z) { return z > 0.0f ? 1.0f : 0.0f; }
};

struct SiLU {
  static float value(float z) { return z / (1.0f + exponential(-z)); }
  static float slope(float z) {
    float s = 1.0f / (1.0f + exponential(-z));
    return s * (1.0f + z * (1.0f - s));
  }
};

struct Maps {
  int64_t batch, channels, pixels;

  explicit Maps(const int64_t *shape) : batch(shape[0]), channels(shape[1]), pixels(shape[2] * shape[3]) {}
  int64_t start(int64_t image, int64_t channel) const { return (image * channels + channel) * pixels; }
  double count() const { return static_cast<double>(batch * pixels); }
};

// x (B, C, H, W), gamma, beta, running mean, running variance (C,), {epsilon, share of the new statistics} ->
// y (B, C, H, W), mean, 1 / sqrt(variance + epsilon), new running mean, new running variance (C,).
template <typename Activation>
int forward(int nparam, void **params, int *ndims, int64_t **shapes) {
  if (nparam != 11 || ndims[0] != 4) return WRONG_ARGUMENTS;
  const Maps maps(shapes[0]);
  const float *x = input(params, 0), *gamma = input(params, 1), *beta = input(params, 2);
  const float *running_mean = input(params, 3), *running_variance = input(params, 4);
  const float epsilon = input(params, 5)[0], share = input(params, 5)[1];
  float *y = output(params, 6), *means = output(params, 7), *scales = output(params, 8);
  float *new_mean = output(params, 9), *new_variance = output(params, 10);
  Threads::get().run(maps.channels, [&](int64_t c) {
    double total = 0.0, squares = 0.0;
    for (int64_t b = 0; b < maps.batch; ++b) {
      const float *in = x + maps.start(b, c);
      total += sum(maps.pixels, [in](int64_t i) { return in[i]; });
    }
    const float mean = static_cast<float>(total / maps.count());
    for (int64_t b = 0; b < maps.batch; ++b) {
      const float *in = x + maps.start(b, c);
      squares += sum(maps.pixels, [in, mean](int64_t i) { return (in[i] - mean) * (in[i] - mean); });
    }
    // an infinite variance gives NaN, where its root alone would hide it behind a scale of 0
    const double variance = squares / maps.count();
    const float scale = static_cast<float>(1.0 / std::sqrt(variance + epsilon) + 0.0 * variance);
    const float unbiased = static_cast<float>(squares / std::max(maps.count() - 1.0, 1.0));
    means[c] = mean;
    scales[c] = scale;
    new_mean[c] = running_mean[c] + (mean - running_mean[c]) * share;
    new_variance[c] = running_variance[c] + (unbiased - running_variance[c]) * share;
    const float factor = scale * gamma[c], offset = beta[c];
    for (int64_t b = 0; b < maps.batch; ++b) {
      const float *in = x + maps.start(b, c);
      float *out = y + maps.start(b, c);
      for (int64_t i = 0; i < maps.pixels; ++i) out[i] = Activation::value((in[i] - mean) * factor + offset);
    }
  });
  return DONE;
}

// dy, x (B, C, H, W), gamma, beta, mean, 1 / sqrt(variance + epsilon) (C,) -> dx (B, C, H, W), dgamma, dbeta (C,).
template <typename Activation>
int backward(int nparam, void **params, int *ndims, int64_t **shapes) {
  if (nparam != 9 || ndims[0] != 4) return WRONG_ARGUMENTS;
  const Maps maps(shapes[0]);
  const float *dy = input(params, 0), *x = input(params, 1), *gamma = input(params, 2), *beta = input(params, 3);
  const float *means = input(params, 4), *scales = input(params, 5);
  float *dx = output(params, 6), *dgamma = output(params, 7), *dbeta = output(params, 8);
  Threads::get().run(maps.channels, [&](int64_t c) {
    const float mean = means[c], scale = scales[c], factor = scale * gamma[c], offset = beta[c];
    double total = 0.0, products = 0.0;
    for (int64_t b = 0; b < maps.batch; ++b) {
      const float *in = x + maps.start(b, c), *grad = dy + maps.start(b, c);
      float *out = dx + maps.start(b, c);  // holds the gradient before the activation until the sums are known
      for (int64_t i = 0; i < maps.pixels; ++i) out[i] = grad[i] * Activation::slope((in[i] - mean) * factor + offset);
      total += sum(maps.pixels, [out](int64_t i) { return out[i]; });
      products += sum(maps.pixels, [in, out, mean](int64_t i) { return out[i] * (in[i] - mean); });
    }
    dbeta[c] = static_cast<float>(total);
    dgamma[c] = static_cast<float>(products * scale);
    const float mean_gradient = static_cast<float>(total / maps.count());
    const float slope = static_cast<float>(products * scale * scale / maps.count());
    for (int64_t b = 0; b < maps.batch; ++b) {
      const float *in = x + maps.start(b, c);
      float *out = dx + maps.start(b, c);
      for (int64_t i = 0; i < maps.pixels; ++i) out[i] = factor * (out[i] - mean_gradient - (in[i] - mean) * slope);
    }
  });
  return DONE;
}

}  // namespace

MSRUN_KERNEL(BatchNorm) { return forward<Identity>(nparam, params, ndims, shapes); }
MSRUN_KERNEL(BatchNormGrad) { return backward<Identity>(nparam, params, ndims, shapes); }
MSRUN_KERNEL(BatchNormReLU) { return forward<ReLU>(nparam, params, ndims, shapes); }
MSRUN_KERNEL(BatchNormReLUGrad) { return backward<ReLU>(nparam, params, ndims, shapes); }
MSRUN_KERNEL(BatchNormSiLU) { return forward<SiLU>(nparam, params, ndims, shapes); }
MSRUN_KERNEL(BatchNormSiLUGrad) { return backward<SiLU>(nparam, params, ndims, shapes); }
