{{/*
What pods of several components have in common.
*/}}

{{/* A pod of Pod Security's level `restricted`. */}}
{{- define "aliquot.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Its containers. */}}
{{- define "aliquot.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/*
Waits until a service answers, and a little until it is ready: a probe that fails writes a Warning event, and a service
that has just been started does not listen yet. Call with its port.
*/}}
{{- define "aliquot.startupProbe" -}}
{{- $url := printf "https://localhost:%d" (int .) -}}
startupProbe:
  exec: {command: [aliquot-await, "{{ $url }}/healthz", --then, "{{ $url }}/readyz"]}
  timeoutSeconds: 140
  failureThreshold: 1
{{- end -}}

{{/* Where a pod goes and how it is named to the kubelet. Call with (list . .Values.webhook "webhook"). */}}
{{- define "aliquot.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with $root.Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $component.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Replicas stand on different nodes where they can. Call with (list . "webhook"). */}}
{{- define "aliquot.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "aliquot.selector" . | nindent 8 }}
{{- end -}}

{{/* Metadata of a pod. Call with (list . .Values.webhook "webhook"). */}}
{{- define "aliquot.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- $component := index . 2 -}}
labels:
  {{- include "aliquot.labels" (list $root $component) | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/*
The volume with a service's certificate. Its keys are named so that a pod waits until all are there: whoever makes them
fills a Secret that the chart has left empty. Call with "webhook".
*/}}
{{- define "aliquot.tlsVolume" -}}
- name: tls
  secret:
    secretName: aliquot-{{ . }}-tls
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]
{{- end -}}

{{/* What a service needs to have the tokens of its callers checked. */}}
{{- define "aliquot.reviews" -}}
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
{{- end -}}

{{/*
Who reads a service's metrics by certificate. TLS asks callers for a certificate and does not insist on one: the kubelet's
probes and the API server show none.
*/}}
{{- define "aliquot.metricsClients" -}}
- --client-ca=/etc/aliquot/tls/ca.crt
- --client-names
- prometheus=metrics
- aliquot-prometheus=metrics
{{- end -}}

{{/* Flags of every service of ours, and then the admin's, each as it stands. Call with (list . .Values.webhook). */}}
{{- define "aliquot.commonArgs" -}}
{{- $common := (index . 0).Values.logging -}}
{{- $own := index . 1 -}}
- --log-level={{ $own.logging.level | default $common.level }}
- --log-format={{ $own.logging.format | default $common.format }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
