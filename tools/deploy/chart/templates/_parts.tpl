{{/* Labels of an object. The argument is the chart's context with the name of the daemon. */}}
{{- define "ringq.labels" -}}
{app: {{ .name }}}
{{- end }}

{{- define "ringq.image" -}}
{{ .root.Values.image.prefix }}ringq-{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* What all pods have: no rights, no token, one machine each where that is possible. */}}
{{- define "ringq.pod" -}}
automountServiceAccountToken: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "ringq.labels" . }}
{{- end }}

{{/* What all containers have: the image, the limits, a file system that nobody can change. */}}
{{- define "ringq.container" -}}
image: {{ include "ringq.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [{{ .name }}]
resources: {{ toJson .values.resources }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The kubelet kills a daemon that does not answer for a minute. A node that drains still answers. */}}
{{- define "ringq.liveness" -}}
livenessProbe:
  httpGet: {path: /ping, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "ringq.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{ include "ringq.labels" . }}
{{- end }}
