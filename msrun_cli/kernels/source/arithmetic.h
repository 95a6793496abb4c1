// Sums and functions written so that a compiler turns them into vector instructions without loosening IEEE's rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace msrun {

constexpr int LANES = 32;
constexpr int64_t BLOCK = 2048;  // numbers that are added up in float32 before the sum goes on in float64

// Sum of term(i) for i = 0 .. count-1, the same for the same numbers wherever they lie.
template <typename Term>
inline double sum(int64_t count, Term term) {
  double total = 0.0;
  for (int64_t start = 0; start < count; start += BLOCK) {
    int64_t stop = std::min(count, start + BLOCK);
    float lanes[LANES] = {};
    int64_t i = start;
    for (; i + LANES <= stop; i += LANES)
      for (int j = 0; j < LANES; ++j) lanes[j] += term(i + j);
    for (int j = 0; i < stop; ++i, ++j) lanes[j] += term(i);
    for (float lane : lanes) total += lane;
  }
  return total;
}

// e^x to about two units in the last place; NaN stays NaN. Cody and Waite's reduction to [-ln 2 / 2, ln 2 / 2], there
// the minimax polynomial of Cephes' expf.
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float TO_WHOLE = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  float n = (x * 1.44269504f + TO_WHOLE) - TO_WHOLE;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits = (static_cast<int32_t>(n) + 127) << 23;  // 2^n
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

}  // namespace msrun
