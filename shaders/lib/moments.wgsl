// Two sets of numbers as one; each is how many there are, their mean, and the sum of squared distances from it. No digits
// are lost where the mean is large (Chan, Golub and LeVeque, 1979). Sums of squares are sets whose mean is taken as 0.
fn combine_moments(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> {
  let n = a.x + b.x;
  let share = b.x / max(n, 1.0);
  let distance = b.y - a.y;
  return vec3<f32>(n, a.y + distance * share, a.z + b.z + distance * distance * a.x * share);
}
