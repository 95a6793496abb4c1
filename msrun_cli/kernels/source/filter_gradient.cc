// Gradient of a convolution's kernel.
//
// Input and gradient are copied into planes whose rows are equally long, the input with its padding and cut into the
// phases of the stride. Then a number of the result is one plain product of two long vectors: the plane of an output
// channel, and that of an input channel from some offset on.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "arguments.h"
#include "parallel.h"

namespace {

using namespace msrun;

// Products that are computed together, so that what is loaded is used several times: as many as there are registers.
#ifdef __AVX512F__
constexpr int WIDTH = 16, OUTPUTS = 8;
#else
constexpr int WIDTH = 8, OUTPUTS = 4;
#endif
constexpr int TAPS = 3;
constexpr int64_t BLOCK = 4096;  // vectors that are added up in float32 before the sum goes on in float64
typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float)), aligned(4)));

// Memory that is kept from call to call and only grows.
class Scratch {
 public:
  float *take(int64_t count) {
    if (count > size_) {
      std::free(data_);
      data_ = static_cast<float *>(std::malloc(count * sizeof(float)));
      size_ = data_ ? count : 0;
    }
    return data_;
  }

 private:
  float *data_ = nullptr;
  int64_t size_ = 0;
};

struct Geometry {
  int64_t batch, channels, height, width, outputs, out_height, out_width, kernel, stride, padding;
  int64_t reach, row, rows, numbers, phase, plane;

  Geometry(const int64_t *x, const int64_t *w, const int64_t *dy, int64_t stride, int64_t padding)
      : batch(x[0]), channels(x[1]), height(x[2]), width(x[3]), outputs(dy[1]), out_height(dy[2]), out_width(dy[3]),
        kernel(w[2]), stride(stride), padding(padding) {
    reach = (kernel - 1) / stride;  // rows or columns of a phase behind those of the output
    row = out_width + reach;
    rows = out_height + reach;
    numbers = whole(out_height * row);
    phase = whole(numbers + reach * row + reach);
    plane = phase * stride * stride;
  }

  static int64_t whole(int64_t count) { return (count + WIDTH - 1) / WIDTH * WIDTH; }
};

// The input's plane `in` -> its phases at `out`: column c of phase (py, px) is column c * stride + px - padding.
void copy_input(const Geometry &g, const float *in, float *out) {
  std::memset(out, 0, g.plane * sizeof(float));
  for (int64_t py = 0; py < g.stride; ++py) {
    for (int64_t px = 0; px < g.stride; ++px) {
      float *phase = out + (py * g.stride + px) * g.phase;
      const int64_t first = px < g.padding ? (g.padding - px + g.stride - 1) / g.stride : 0;
      const int64_t stop = std::min(g.row, (g.width - 1 + g.padding - px) / g.stride + 1);
      for (int64_t r = 0; r < g.rows; ++r) {
        const int64_t y = r * g.stride + py - g.padding;
        if (y < 0 || y >= g.height) continue;
        const float *line = in + y * g.width + px - g.padding;
        float *to = phase + r * g.row;
        if (g.stride == 1)
          std::copy(line + first, line + std::max(first, stop), to + first);
        else
          for (int64_t c = first; c < stop; ++c) to[c] = line[c * g.stride];
      }
    }
  }
}

// The gradient's plane, each row followed by zeros.
void copy_gradient(const Geometry &g, const float *in, float *out) {
  std::memset(out, 0, g.numbers * sizeof(float));
  for (int64_t r = 0; r < g.out_height; ++r)
    std::memcpy(out + r * g.row, in + r * g.out_width, g.out_width * sizeof(float));
}

inline Vector load(const float *from) { return *reinterpret_cast<const Vector *>(from); }

// sums[o][t] += gradients[o] * inputs[t], lane by lane.
void add_products(const float *const *gradients, const float *const *inputs, int64_t count,
                  Vector (&sums)[OUTPUTS][TAPS]) {
  Vector s[OUTPUTS][TAPS];
  std::memcpy(s, sums, sizeof(s));
  const float *in0 = inputs[0], *in1 = inputs[1], *in2 = inputs[2];
  for (int64_t i = 0; i < count; i += WIDTH) {
    const Vector x0 = load(in0 + i), x1 = load(in1 + i), x2 = load(in2 + i);
#pragma GCC unroll 8
    for (int o = 0; o < OUTPUTS; ++o) {
      const Vector gradient = load(gradients[o] + i);
      s[o][0] += gradient * x0;
      s[o][1] += gradient * x1;
      s[o][2] += gradient * x2;
    }
  }
  std::memcpy(sums, s, sizeof(s));
}

// All taps of OUTPUTS output channels, from `first` on, and input channel c.
void compute(const Geometry &g, const float *inputs, const float *gradients, int64_t c, int64_t first, float *dw) {
  const int64_t taps = g.kernel * g.kernel, images_a_block = BLOCK / (g.numbers / WIDTH) + 1;
  for (int64_t tap = 0; tap < taps; tap += TAPS) {
    double totals[OUTPUTS][TAPS] = {};
    Vector sums[OUTPUTS][TAPS] = {};
    for (int64_t b = 0; b < g.batch; ++b) {
      const float *from[OUTPUTS], *at[TAPS];  // those beyond the last are computed twice and dropped
      for (int o = 0; o < OUTPUTS; ++o)
        from[o] = gradients + (b * g.outputs + std::min(first + o, g.outputs - 1)) * g.numbers;
      for (int t = 0; t < TAPS; ++t) {
        const int64_t n = std::min(tap + t, taps - 1), ky = n / g.kernel, kx = n % g.kernel;
        at[t] = inputs + (b * g.channels + c) * g.plane + (ky % g.stride * g.stride + kx % g.stride) * g.phase +
                ky / g.stride * g.row + kx / g.stride;
      }
      add_products(from, at, g.numbers, sums);
      if ((b + 1) % images_a_block != 0 && b + 1 != g.batch) continue;
      for (int o = 0; o < OUTPUTS; ++o) {
        for (int t = 0; t < TAPS; ++t) {
          for (int lane = 0; lane < WIDTH; ++lane) totals[o][t] += sums[o][t][lane];
          sums[o][t] = Vector{};
        }
      }
    }
    for (int o = 0; o < OUTPUTS && first + o < g.outputs; ++o)
      for (int t = 0; t < TAPS && tap + t < taps; ++t)
        dw[((first + o) * g.channels + c) * taps + tap + t] = static_cast<float>(totals[o][t]);
  }
}

}  // namespace

// x (B, C, H, W), w (O, C, K, K), dy (B, O, h, w), {stride, padding} -> dw (O, C, K, K).
MSRUN_KERNEL(FilterGradient) {
  if (nparam != 5 || ndims[0] != 4 || ndims[1] != 4 || ndims[2] != 4) return WRONG_ARGUMENTS;
  const float *x = input(params, 0), *dy = input(params, 2), *settings = input(params, 3);
  float *dw = output(params, 4);
  const Geometry g(shapes[0], shapes[1], shapes[2], static_cast<int64_t>(settings[0]),
                   static_cast<int64_t>(settings[1]));
  static std::mutex one_at_a_time;  // for the scratch memory
  std::lock_guard<std::mutex> lock(one_at_a_time);
  static Scratch input_memory, gradient_memory;
  float *inputs = input_memory.take(g.batch * g.channels * g.plane);
  float *gradients = gradient_memory.take(g.batch * g.outputs * g.numbers);
  if (!inputs || !gradients) return NO_MEMORY;
  const int64_t input_planes = g.batch * g.channels, gradient_planes = g.batch * g.outputs;
  Threads::get().run(input_planes + gradient_planes, [&](int64_t task) {
    if (task < input_planes)
      copy_input(g, x + task * g.height * g.width, inputs + task * g.plane);
    else
      copy_gradient(g, dy + (task - input_planes) * g.out_height * g.out_width,
                    gradients + (task - input_planes) * g.numbers);
  });
  const int64_t blocks = (g.outputs + OUTPUTS - 1) / OUTPUTS;
  Threads::get().run(g.channels * blocks, [&](int64_t task) {
    compute(g, inputs, gradients, task / blocks, task % blocks * OUTPUTS, dw);
  });
  return DONE;
}
